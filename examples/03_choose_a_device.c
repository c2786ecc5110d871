/* SPDX-License-Identifier: MIT
 * Introduces: devices. Lists what there is and loads a model on the one that was asked for.
 *
 *   03_choose_a_device MODEL [DEVICE] */
#include <still/model.h>

#include <stdio.h>

static void print_log(void *user, still_log_level level, const char *message) {
  (void)user;
  (void)level;
  printf("  (%s)\n", message);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL [DEVICE]\n", argv[0]);
    return 2;
  }
  still_device_info devices[8];
  size_t count;
  still_set_log(print_log, NULL, STILL_LOG_INFO); /* the library is silent unless asked */
  if (still_list_devices(devices, 8, &count)) goto fail;
  for (size_t i = 0; i < count && i < 8; i++)
    printf("%-10s %s\n", devices[i].name, devices[i].description);

  still_model *model = NULL;
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.device = argc > 2 ? argv[2] : "cpu";
  if (still_model_open(&model, argv[1], &options)) goto fail;
  printf("loaded on %s, kernels %s, %d threads\n", options.device, still_cpu_level(),
         still_default_threads());
  still_model_destroy(model);
  return 0;

fail:
  fprintf(stderr, "%s\n", still_last_error());
  return 1;
}

/* SPDX-License-Identifier: MIT
 * The device itself: choice, machines without Vulkan, refused Vulkan calls (each one in turn), lowered limits, shaders that give wrong
 * results, the upload queue, a device of the application's. */
#include "gpu/gpu_fixtures.h"

#include "backend/backend.h"
#include "backend/vulkan/vulkan_attention.h"
#include "backend/vulkan/vulkan_check.h"
#include "base/memory.h"
#include "model/model_fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 2, D = 16, N = 40 };

/* ---- choice --------------------------------------------------------------------------------------------------- */

static void names_choose_devices(void **state) {
  (void)state;
  still_vulkan *vulkan;
  check_fails(still_vulkan_open(&vulkan, "cuda"), STILL_ERROR_ARGUMENT, "vulkan:N");
  check_fails(still_vulkan_open(&vulkan, "vulkan:x"), STILL_ERROR_DEVICE, "vulkan:0");
  check_fails(still_vulkan_open(&vulkan, "vulkan:99"), STILL_ERROR_DEVICE, "vulkan:0");
  still_device_info devices[16];
  size_t count;
  check_ok(still_list_devices(devices, 16, &count));
  assert_true(count >= 2);
  assert_string_equal(devices[0].name, "cpu");
  assert_string_equal(devices[1].name, "vulkan:0");
  bool real = false;
  for (size_t i = 1; i < count; i++) real |= devices[i].kind != STILL_DEVICE_SOFTWARE_GPU;
  if (real) skip(); /* then "vulkan" means that one */
  check_fails(still_vulkan_open(&vulkan, "vulkan"), STILL_ERROR_DEVICE, "run on the CPU");
}

/* In a process of its own: the loader reads its environment once. */
static int without_drivers(void) {
  still_vulkan *vulkan;
  still_device_info devices[4];
  size_t count;
  if (still_vulkan_open(&vulkan, "vulkan:0") != STILL_ERROR_DEVICE || !*still_last_error())
    return 1;
  if (still_list_devices(devices, 4, &count) || count != 1) return 1;
  printf("%s\n", still_last_error());
  return still_allocated_bytes() != 0;
}

/* As where libvulkan.so.1 is missing. */
static int without_loader(void) {
  still_device_info devices[4];
  size_t count;
  still_vulkan *vulkan;
  still_vulkan_fail_call(1, VK_ERROR_INITIALIZATION_FAILED);
  if (still_list_devices(devices, 4, &count) || count != 1) return 1;
  still_vulkan_fail_call(1, VK_ERROR_INITIALIZATION_FAILED);
  if (still_vulkan_open(&vulkan, "vulkan:0") != STILL_ERROR_DEVICE) return 1;
  printf("%s\n", still_last_error());
  return still_allocated_bytes() != 0;
}

static void print_log(void *user, still_log_level level, const char *message) {
  (void)user;
  (void)level;
  printf("%s\n", message);
}

/* A model that was to run on a GPU runs on the CPU. */
static int model_without_drivers(void) {
  still_model_options options = STILL_MODEL_OPTIONS_INIT;
  options.device = "vulkan:0";
  still_model *model;
  still_session *session;
  still_model_info info;
  const still_token ids[] = {1, 2, 3};
  still_set_log(print_log, NULL, STILL_LOG_WARNING);
  if (still_model_open(&model, small_gguf(), &options)) return 1;
  still_model_get_info(model, &info);
  if (info.device_layers || still_session_create(&session, model, NULL) ||
      still_session_evaluate(session, ids, 3, NULL, NULL))
    return 1;
  still_session_destroy(session);
  still_model_destroy(model);
  return still_allocated_bytes() != 0;
}

static const char *program;

static void no_driver_is_a_sentence(void **state) {
  (void)state;
  const char *const argv[] = {program, "--without-drivers", NULL};
  const char *const environment[] = {"VK_ICD_FILENAMES=/dev/null", "VK_DRIVER_FILES=/dev/null",
                                     NULL};
  check_run_result result = check_run(argv, NULL, environment);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "vulkan"));
  check_run_free(&result);
  const char *const loader[] = {program, "--without-loader", NULL};
  result = check_run(loader, NULL, NULL);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "libvulkan1"));
  check_run_free(&result);
  const char *const model[] = {program, "--model-without-drivers", NULL};
  result = check_run(model, NULL, environment);
  assert_int_equal(result.code, 0);
  assert_non_null(strstr(result.out, "the CPU is used"));
  check_run_free(&result);
}

/* ---- refused calls --------------------------------------------------------------------------------------------- */

static still_status open_and_close(void) {
  still_vulkan *vulkan;
  const uint32_t constants[STILL_VULKAN_CONSTANTS] = {0};
  const still_vulkan_pipeline *pipeline;
  STILL_TRY(still_vulkan_open(&vulkan, gpu_device()));
  const still_status status =
      still_vulkan_pipeline_get(vulkan, STILL_SHADER_probe_copy_f32, constants, &pipeline);
  still_vulkan_close(vulkan);
  return status;
}

/* A plan, a cache, prefill and decode. */
static still_status attend(void) {
  float x[H * N * D], y[H * N * D];
  check_normal(x, H * N * D, 1);
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.heads = H;
  o.head_dim = D;
  o.chunk = 16;
  o.budget = 32;
  o.context = 64;
  o.device = gpu_device();
  still_attention_plan *plan = NULL;
  still_attention_cache *cache = NULL;
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = in.k = in.v = (still_rows){x, N * D, D};
  still_status status = still_attention_plan_create(&plan, &o, NULL);
  if (!status) status = still_attention_cache_create(&cache, plan);
  if (!status) status = still_attention_forward(plan, cache, N - 1, &in, y, N * D, D);
  if (!status) status = still_attention_forward(plan, cache, 1, &in, y, N * D, D);
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  return status;
}

/* A device that is held open keeps pieces of host memory that are empty (vulkan_memory.c), which take 4160 bytes each to describe:
 * how many depends on where a call failed. */
enum { KEPT_EMPTY = 16384 };

/* Every Vulkan call of the scenario fails once: an error or a result without that call, and nothing is left over. */
static void fail_each_call(still_status (*scenario)(void), VkResult result) {
  const uint64_t before = still_allocated_bytes();
  check_ok(scenario()); /* once for what is done only once: shaders, self-checks */
  still_vulkan_fail_call(0, VK_SUCCESS);
  check_ok(scenario());
  const long calls = still_vulkan_calls();
  const uint64_t settled =
      still_allocated_bytes(); /* shaders stay with a device that is held open */
  assert_true(calls > 5);
  long errors = 0;
  for (long call = 1; call <= calls; call++) {
    still_vulkan_fail_call(call, result);
    const still_status status = scenario();
    still_vulkan_fail_call(0, VK_SUCCESS);
    if (status) errors++;
    if (status && status != STILL_ERROR_MEMORY && status != STILL_ERROR_DEVICE &&
        status != STILL_ERROR_UNSUPPORTED)
      fail_msg("call %ld: status %d: %s", call, (int)status, still_last_error());
    if (still_allocated_bytes() > (settled > before ? settled : before) + KEPT_EMPTY)
      fail_msg("call %ld: %llu bytes are left", call,
               (unsigned long long)(still_allocated_bytes() - before));
  }
  assert_true(errors >
              calls / 2); /* some calls can be done without: timestamps, the pipeline cache */
  check_ok(scenario());
}

static void each_call_of_opening_may_fail(void **state) {
  (void)state;
  fail_each_call(open_and_close, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  fail_each_call(open_and_close, VK_ERROR_INITIALIZATION_FAILED);
}

static still_vulkan *held;

static void each_call_of_attention_may_fail(void **state) {
  (void)state;
  check_ok(still_vulkan_open(&held, gpu_device()));
  fail_each_call(attend, VK_ERROR_OUT_OF_DEVICE_MEMORY);
  still_vulkan_close(held);
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

static void small_limits_are_kept(void **state) {
  (void)state;
  setenv("STILL_VULKAN_LIMITS", "range=65536,heap=4194304", 1);
  still_backend *backend;
  still_buffer *buffer, *in, *out;
  check_ok(still_backend_create(&backend, gpu_device(), 1));
  unsetenv("STILL_VULKAN_LIMITS");
  check_fails(backend->ops->buffer_create(backend, 20000, &buffer), STILL_ERROR_UNSUPPORTED,
              "binds at most");
  /* a matrix four times the size of a binding: its rows lie in several buffers */
  enum { ROWS = 1024, COLUMNS = 64 };
  float *w = malloc(sizeof(float) * ROWS * COLUMNS), x[COLUMNS], y[ROWS];
  assert_non_null(w);
  check_normal(w, ROWS * COLUMNS, 5);
  check_normal(x, COLUMNS, 6);
  const still_tensor tensor = {
      "w", STILL_TENSOR_F32, 2, {ROWS, COLUMNS}, w, sizeof(float) * ROWS * COLUMNS};
  still_weight *weight;
  check_ok(backend->ops->weight_create(backend, &tensor, &weight));
  check_ok(backend->ops->buffer_create(backend, COLUMNS, &in));
  check_ok(backend->ops->buffer_create(backend, ROWS, &out));
  check_ok(backend->ops->buffer_write(backend, in, 0, x, COLUMNS));
  check_ok(backend->ops->matmul(backend, out, weight, in, 1, 0));
  check_ok(backend->ops->buffer_read(backend, out, 0, y, ROWS));
  for (int r = 0; r < ROWS; r++) {
    double want = 0;
    for (int c = 0; c < COLUMNS; c++) want += (double)w[r * COLUMNS + c] * (double)x[c];
    assert_true(want - (double)y[r] < 1e-4 && (double)y[r] - want < 1e-4);
  }
  const int32_t last = ROWS - 1;
  check_ok(backend->ops->embed(backend, in, weight, &last, 1));
  check_ok(backend->ops->buffer_read(backend, in, 0, y, COLUMNS));
  assert_memory_equal(y, w + (size_t)last * COLUMNS, sizeof(float) * COLUMNS);
  /* the heap ends with a sentence, and what exists stays usable */
  still_buffer *many[512];
  int made = 0;
  still_status status = STILL_OK;
  while (made < 512 && !(status = backend->ops->buffer_create(backend, 16000, &many[made]))) made++;
  assert_int_equal(status, STILL_ERROR_MEMORY);
  assert_non_null(strstr(still_last_error(), "no room"));
  while (made) backend->ops->buffer_destroy(backend, many[--made]);
  check_ok(backend->ops->buffer_create(backend, 16000, &buffer));
  backend->ops->buffer_destroy(backend, buffer);
  backend->ops->buffer_destroy(backend, in);
  backend->ops->buffer_destroy(backend, out);
  backend->ops->weight_destroy(backend, weight);
  still_backend_destroy(backend);
  free(w);
}

/* ---- wrong shaders ------------------------------------------------------------------------------------------------ */

static char logged[1024];
static void keep_log(void *user, still_log_level level, const char *message) {
  (void)user;
  if (level <= STILL_LOG_WARNING) snprintf(logged, sizeof logged, "%s", message);
}

static void wrong_variants_are_switched_off(void **state) {
  (void)state;
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = STILL_ATTENTION_FULL;
  o.heads = H;
  o.head_dim = D;
  o.context = 64;
  o.device = gpu_device();
  o.cache_type = vulkan->features & STILL_VULKAN_F16 ? STILL_F16 : STILL_F32;
  still_attention_plan *plan;
  still_attention_cache *cache;
  still_set_log(keep_log, NULL, STILL_LOG_WARNING);
  still_vulkan_pretend_wrong(STILL_VULKAN_F16 | STILL_VULKAN_COOPMAT | STILL_VULKAN_F32);
  check_ok(still_attention_plan_create(&plan, &o, NULL));
  check_fails(still_attention_cache_create(&cache, plan), STILL_ERROR_UNSUPPORTED,
              "differs from the CPU");
  still_vulkan_pretend_wrong(0);
  still_set_log(NULL, NULL, STILL_LOG_ERROR);
  if (o.cache_type == STILL_F16) {
    assert_non_null(strstr(logged, "f16 switched off"));
    assert_false(vulkan->features & STILL_VULKAN_F16);
  }
  still_attention_plan_destroy(plan);
  still_vulkan_close(vulkan);
}

static void wrong_subgroups_are_switched_off(void **state) {
  (void)state;
  still_backend *backend;
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  if (!(vulkan->features & STILL_VULKAN_SUBGROUP)) {
    still_vulkan_close(vulkan);
    skip();
  }
  still_set_log(keep_log, NULL, STILL_LOG_WARNING);
  still_vulkan_pretend_wrong(STILL_VULKAN_SUBGROUP);
  check_ok(still_backend_create(&backend, gpu_device(), 1));
  still_vulkan_pretend_wrong(0);
  still_set_log(NULL, NULL, STILL_LOG_ERROR);
  assert_non_null(strstr(logged, "subgroup switched off"));
  assert_false(vulkan->features & STILL_VULKAN_SUBGROUP);
  still_backend_destroy(backend);
  still_vulkan_close(vulkan);
}

/* ---- bounded submissions ------------------------------------------------------------------------------------------ */

/* On a slow device a long prefill goes in many short pieces. */
static void submissions_are_bounded(void **state) {
  (void)state;
  enum { LONG = 1500 };
  still_vulkan *vulkan;
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = STILL_ATTENTION_FULL;
  o.heads = 1;
  o.head_dim = D;
  o.context = LONG;
  o.device = gpu_device();
  static float x[LONG * D], y[LONG * D];
  check_normal(x, LONG * D, 3);
  still_attention_plan *plan;
  still_attention_cache *cache;
  still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
  in.q = in.k = in.v = (still_rows){x, D, D};
  check_ok(still_attention_plan_create(&plan, &o, NULL));
  check_ok(still_attention_cache_create(&cache, plan));
  uint64_t pieces[2];
  for (int slow = 0; slow < 2; slow++) {
    still_attention_cache_reset(cache);
    vulkan->commands.rate = slow ? 1e7 : 1e12;
    const uint64_t before = vulkan->commands.submissions;
    check_ok(still_attention_forward(plan, cache, LONG, &in, y, D, D));
    pieces[slow] = vulkan->commands.submissions - before;
  }
  assert_true(pieces[0] <= 3);
  assert_true(pieces[1] >= pieces[0] + 3); /* the rate is learned on the way */
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
  still_vulkan_close(vulkan);
}

/* ---- the upload queue ---------------------------------------------------------------------------------------------- */

/* More than the staging buffers hold, seen by a shader and by the host. */
static void uploads_arrive(void **state) {
  (void)state;
  enum { ROWS = 9000, COLUMNS = 1024 };
  setenv("STILL_VULKAN_LIMITS", "transfer=compute", 1);
  still_backend *backend;
  check_ok(still_backend_create(&backend, gpu_device(), 1));
  unsetenv("STILL_VULKAN_LIMITS");
  float *data = malloc(sizeof(float) * ROWS * COLUMNS), got[COLUMNS];
  assert_non_null(data);
  for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) data[i] = (float)(i % 8191);
  const still_tensor tensor = {
      "w", STILL_TENSOR_F32, 2, {ROWS, COLUMNS}, data, sizeof(float) * ROWS * COLUMNS};
  still_weight *weight;
  still_buffer *row;
  check_ok(backend->ops->weight_create(backend, &tensor, &weight));
  check_ok(backend->ops->buffer_create(backend, COLUMNS, &row));
  for (int32_t id = 0; id < ROWS; id += 1799) {
    check_ok(backend->ops->embed(backend, row, weight, &id, 1));
    check_ok(backend->ops->buffer_read(backend, row, 0, got, COLUMNS));
    assert_memory_equal(got, data + (size_t)id * COLUMNS, sizeof got);
  }
  backend->ops->buffer_destroy(backend, row);
  backend->ops->weight_destroy(backend, weight);
  still_backend_destroy(backend);
  free(data);
}

/* ---- a device of the application's ------------------------------------------------------------------------------ */

enum { ROW_FLOATS = H * D, SHARED_BYTES = N * ROW_FLOATS * sizeof(float) };

/* What an application would have: instance, device, queue, and one mapped buffer for x and y. */
typedef struct application {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkDevice device;
  struct VolkDeviceTable call;
  VkQueue queue;
  VkBuffer buffer;
  VkDeviceMemory memory;
  float *mapped;
  int locked, submissions;
} application;

static void lock_queue(void *user) {
  application *a = user;
  assert_int_equal(a->locked++, 0);
}

static void unlock_queue(void *user) {
  application *a = user;
  assert_int_equal(a->locked--, 1);
  a->submissions++;
}

static void make_device(application *a) {
  const VkApplicationInfo info = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                  .apiVersion = VK_API_VERSION_1_1};
  const VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                         .pApplicationInfo = &info};
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueCount = 1,
                                         .pQueuePriorities = &priority};
  const VkDeviceCreateInfo device = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue};
  uint32_t one = 1;
  assert_int_equal(vkCreateInstance(&instance, NULL, &a->instance), VK_SUCCESS);
  assert_true(vkEnumeratePhysicalDevices(a->instance, &one, &a->physical) >= 0);
  assert_int_equal(vkCreateDevice(a->physical, &device, NULL, &a->device), VK_SUCCESS);
  volkLoadDeviceTable(&a->call, a->device);
  a->call.vkGetDeviceQueue(a->device, 0, 0, &a->queue);
}

static void make_buffer(application *a) {
  const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                   .size = 2 * SHARED_BYTES,
                                   .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
  assert_int_equal(a->call.vkCreateBuffer(a->device, &info, NULL, &a->buffer), VK_SUCCESS);
  VkMemoryRequirements needs;
  a->call.vkGetBufferMemoryRequirements(a->device, a->buffer, &needs);
  VkPhysicalDeviceMemoryProperties properties;
  vkGetPhysicalDeviceMemoryProperties(a->physical, &properties);
  VkMemoryAllocateInfo memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = needs.size};
  const VkMemoryPropertyFlags flags =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  while (!(needs.memoryTypeBits >> memory.memoryTypeIndex & 1) ||
         (properties.memoryTypes[memory.memoryTypeIndex].propertyFlags & flags) != flags)
    memory.memoryTypeIndex++;
  assert_int_equal(a->call.vkAllocateMemory(a->device, &memory, NULL, &a->memory), VK_SUCCESS);
  assert_int_equal(a->call.vkBindBufferMemory(a->device, a->buffer, a->memory, 0), VK_SUCCESS);
  assert_int_equal(
      a->call.vkMapMemory(a->device, a->memory, 0, VK_WHOLE_SIZE, 0, (void **)&a->mapped),
      VK_SUCCESS);
}

static void destroy_application(application *a) {
  a->call.vkDestroyBuffer(a->device, a->buffer, NULL);
  a->call.vkFreeMemory(a->device, a->memory, NULL);
  a->call.vkDestroyDevice(a->device, NULL);
  vkDestroyInstance(a->instance, NULL);
}

/* x in, y out, by the CPU's or by shared buffers. */
static void attend_shared(const char *device, application *a, const float *x, float *y) {
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.kind = STILL_ATTENTION_SWA;
  o.heads = H;
  o.head_dim = D;
  o.window = 16;
  o.device = device;
  still_attention_plan *plan;
  still_attention_cache *cache;
  check_ok(still_attention_plan_create(&plan, &o, NULL));
  check_ok(still_attention_cache_create(&cache, plan));
  if (a) {
    still_attention_buffers b = STILL_ATTENTION_BUFFERS_INIT;
    b.q.buffer = b.k.buffer = b.v.buffer = b.y.buffer = (uint64_t)a->buffer;
    b.y.offset = 1;
    check_fails(still_attention_forward_buffers(plan, cache, N, &b), STILL_ERROR_ARGUMENT,
                "multiple of");
    b.y.offset = SHARED_BYTES;
    memcpy(a->mapped, x, SHARED_BYTES);
    check_ok(still_attention_forward_buffers(plan, cache, N - 1, &b));
    b.q.offset = b.k.offset = b.v.offset = (N - 1) * ROW_FLOATS * sizeof(float);
    b.y.offset += b.q.offset;
    check_ok(still_attention_forward_buffers(plan, cache, 1, &b));
    memcpy(y, a->mapped + N * ROW_FLOATS, SHARED_BYTES);
    check_fails(still_unshare_device(device), STILL_ERROR_ARGUMENT, "still use");
  } else {
    still_attention_inputs in = STILL_ATTENTION_INPUTS_INIT;
    in.q = in.k = in.v = (still_rows){x, D, ROW_FLOATS};
    check_ok(still_attention_forward(plan, cache, N, &in, y, D, ROW_FLOATS));
    still_attention_buffers b = STILL_ATTENTION_BUFFERS_INIT;
    b.q.buffer = b.k.buffer = b.v.buffer = b.y.buffer = 1;
    check_fails(still_attention_forward_buffers(plan, cache, 1, &b), STILL_ERROR_ARGUMENT, "CPU");
  }
  still_attention_cache_destroy(cache);
  still_attention_plan_destroy(plan);
}

static void a_device_can_be_shared(void **state) {
  (void)state;
  static float x[N * ROW_FLOATS], want[N * ROW_FLOATS], got[N * ROW_FLOATS];
  check_normal(x, N * ROW_FLOATS, 9);
  still_vulkan *held_open, *vulkan; /* so that the loader's functions are there */
  check_ok(still_vulkan_open(&held_open, gpu_device()));
  application a = {0};
  make_device(&a);
  make_buffer(&a);
  still_shared_device shared = STILL_SHARED_DEVICE_INIT;
  char name[32];
  check_fails(still_share_device(&shared, name), STILL_ERROR_ARGUMENT, "instance");
  shared.instance = a.instance;
  shared.physical_device = a.physical;
  shared.device = a.device;
  shared.queue = a.queue;
  shared.lock = lock_queue;
  check_fails(still_share_device(&shared, name), STILL_ERROR_ARGUMENT, "unlock");
  shared.unlock = unlock_queue;
  shared.user = &a;
  shared.queue_family = 99;
  check_fails(still_share_device(&shared, name), STILL_ERROR_ARGUMENT, "family 99");
  shared.queue_family = 0;
  check_ok(still_share_device(&shared, name));
  assert_string_equal(name, "vulkan:shared0");
  attend_shared(NULL, NULL, x, want);
  attend_shared(name, &a, x, got);
  check_rows_close("shared buffers", got, want, N * H, D, 2e-5);
  assert_true(a.submissions > 0 && !a.locked);
  still_backend *backend; /* models can use it, too */
  check_ok(still_backend_create(&backend, name, 1));
  still_backend_destroy(backend);
  check_ok(still_unshare_device(name));
  check_fails(still_unshare_device(name), STILL_ERROR_ARGUMENT, "no shared device");
  check_fails(still_vulkan_open(&vulkan, name), STILL_ERROR_DEVICE, "vulkan:0");
  destroy_application(&a);
  still_vulkan_close(held_open);
}

static void features_can_be_switched_off(void **state) {
  (void)state;
  still_vulkan *vulkan;
  setenv("STILL_VULKAN_DISABLE", "f16,coopmat,subgroup,transfer,unchecked", 1);
  check_ok(still_vulkan_open(&vulkan, gpu_device()));
  unsetenv("STILL_VULKAN_DISABLE");
  assert_int_equal(vulkan->features, 0);
  still_attention_options o = STILL_ATTENTION_OPTIONS_INIT;
  o.heads = H;
  o.head_dim = D;
  o.device = gpu_device();
  o.cache_type = STILL_F16;
  still_attention_plan *plan;
  check_fails(still_attention_plan_create(&plan, &o, NULL), STILL_ERROR_UNSUPPORTED, "16-bit");
  still_vulkan_close(vulkan);
}

int main(int argc, char **argv) {
  program = argv[0];
  if (argc > 1 && !strcmp(argv[1], "--without-drivers")) return without_drivers();
  if (argc > 1 && !strcmp(argv[1], "--without-loader")) return without_loader();
  if (argc > 1 && !strcmp(argv[1], "--model-without-drivers")) return model_without_drivers();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_choose_devices),
      cmocka_unit_test(no_driver_is_a_sentence),
      cmocka_unit_test(small_limits_are_kept),
      cmocka_unit_test(features_can_be_switched_off),
      cmocka_unit_test(wrong_variants_are_switched_off),
      cmocka_unit_test(wrong_subgroups_are_switched_off),
      cmocka_unit_test(submissions_are_bounded),
      cmocka_unit_test(uploads_arrive),
      cmocka_unit_test(a_device_can_be_shared),
      cmocka_unit_test(each_call_of_opening_may_fail),
      cmocka_unit_test(each_call_of_attention_may_fail),
  };
  still_vulkan *vulkan;
  if (still_vulkan_open(&vulkan, gpu_device())) {
    printf("skipped: %s\n", still_last_error());
    return 77;
  }
  still_vulkan_close(vulkan); /* not held open: most of these tests want a fresh device */
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (still_allocated_bytes()) {
    printf("%llu bytes are still allocated\n", (unsigned long long)still_allocated_bytes());
    return 1;
  }
  return failed;
}

/* SPDX-License-Identifier: MIT
 * still-info: what a model file is, and what its contexts take in memory. */
#include "program_arguments.h"
#include "program_json.h"
#include "program_model.h"
#include "program_terminal.h"

#include <stdio.h>

static int json_output, help, version;

static const program_flag info_flags[] = {
    FLAG_HEADING("what to show"),
    FLAG_SWITCH("--json", "one JSON object", &json_output),
    FLAG_SWITCH("--version", "print the version and end", &version),
    FLAG_SWITCH("-h, --help", "print this and end", &help),
    FLAG_END,
};

static const program_flag *const flags[] = {program_model_flags, info_flags, NULL};

static const char *chat_family(const still_tokenizer *tokenizer) {
  const char *family = tokenizer ? still_tokenizer_chat_family(tokenizer) : NULL;
  return family ? family : "none";
}

static void print_json(const still_model_info *info, const still_tokenizer *tokenizer) {
  program_json json = program_json_begin(stdout);
  program_json_string(&json, "model", program_model_path());
  program_json_string(&json, "name", info->name);
  program_json_string(&json, "architecture", info->architecture);
  program_json_string(&json, "weights", info->weights);
  program_json_integer(&json, "parameters", (int64_t)info->parameters);
  program_json_integer(&json, "weight_bytes", (int64_t)info->weight_bytes);
  program_json_integer(&json, "layers", info->layers);
  program_json_integer(&json, "heads", info->heads);
  program_json_integer(&json, "kv_heads", info->kv_heads);
  program_json_integer(&json, "head_dim", info->head_dim);
  program_json_integer(&json, "width", info->width);
  program_json_integer(&json, "feed_forward", info->feed_forward);
  program_json_integer(&json, "vocabulary", info->vocabulary);
  program_json_integer(&json, "trained_context", info->trained_context);
  program_json_integer(&json, "tokens_known", tokenizer ? still_tokenizer_size(tokenizer) : 0);
  program_json_string(&json, "chat", chat_family(tokenizer));
  program_json_end(&json);
}

static void print_token(const char *label, const still_tokenizer *tokenizer, still_token id) {
  char text[64];
  if (id < 0) {
    printf("  %s none\n", label);
    return;
  }
  size_t bytes = still_token_text(tokenizer, id, 1, text, sizeof text);
  printf("  %s %d %.*s\n", label, id, (int)(bytes < sizeof text ? bytes : sizeof text), text);
}

static void print_info(const still_model_info *info, const still_tokenizer *tokenizer) {
  printf("%s%s%s, architecture %s\n", program_model_path(), *info->name ? ": " : "", info->name,
         info->architecture);
  printf("  parameters  %.1f M in %s (%s)\n", (double)info->parameters / 1e6,
         program_bytes(info->weight_bytes), info->weights);
  printf(
      "  shape       %d layers, width %d, feed-forward %d, %d query heads and %d key/value heads "
      "of %d\n",
      info->layers, info->width, info->feed_forward, info->heads, info->kv_heads, info->head_dim);
  printf("  context     trained for %d tokens\n", info->trained_context);
  if (!tokenizer) {
    printf("  vocabulary  %d ids, no tokenizer in the files\n", info->vocabulary);
    return;
  }
  printf("  vocabulary  %d ids, chat template: %s\n", still_tokenizer_size(tokenizer),
         chat_family(tokenizer));
  print_token("begin      ", tokenizer, still_tokenizer_bos(tokenizer));
  print_token("end        ", tokenizer, still_tokenizer_eos(tokenizer));
}

/* Cache bytes of full attention and of the chosen one, beside each other. */
static int print_memory(const still_model *model) {
  static const int lengths[] = {1024, 4096, 16384, 65536, 262144};
  int code = PROGRAM_DONE;
  const char *name = still_attention_kind_name((still_attention_kind)program_choice.attention);
  printf("\n%12s %14s %14s\n", "tokens", "full cache", name);
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !code; i++) {
    still_session_usage full, chosen;
    still_session_options options = program_session_options();
    if (program_fit_session(model, &options)) return PROGRAM_USAGE;
    still_session_options plain = STILL_SESSION_OPTIONS_INIT;
    plain.context = lengths[i];
    plain.cache_type = options.cache_type;
    plain.adapter_kinds = 0;
    if (still_session_estimate(model, &plain, lengths[i], &full) ||
        still_session_estimate(model, &options, lengths[i], &chosen))
      code = program_failure(NULL);
    else
      printf("%12d %14s %14s\n", lengths[i], program_bytes(full.cache_bytes),
             program_bytes(chosen.cache_bytes));
  }
  return code;
}

static int start(int argc, char **argv) {
  program_begin("still-info");
  int code = program_parse(flags, argc, argv);
  if (!code && !help && program_choice.attention < 0)
    program_choice.attention = STILL_ATTENTION_STILL;
  if (!code) code = program_model_check();
  if (!code) code = program_check_kinds();
  if (code) return code;
  if (help) {
    program_help(flags, "still-info says what a model is and what its contexts take in memory.",
                 "still-info [-m MODEL] [flags]",
                 "  still-info\n"
                 "  still-info -m model.gguf --attn still --budget 512 -c 32768 --json\n");
    return PROGRAM_DONE;
  }
  if (version) {
    printf("still-info %s\n", still_version());
    return PROGRAM_DONE;
  }
  program_terminal_begin(0);
  still_model *model = NULL;
  code = program_model_open(&model);
  if (code) return code;
  still_model_info info;
  still_model_get_info(model, &info);
  const still_tokenizer *tokenizer = still_model_tokenizer(model);
  if (json_output) {
    print_json(&info, tokenizer);
  } else {
    print_info(&info, tokenizer);
    code = print_memory(model);
  }
  still_model_destroy(model);
  return code;
}

int main(int argc, char **argv) {
  return program_end(start(argc, argv));
}

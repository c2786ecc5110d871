/* SPDX-License-Identifier: MIT
 * A stream of any length in constant memory: what the library holds and what the process has resident stay as they were.
 * Argument: the number of tokens. */
#include "harness/check.h"
#include "model/model_fixtures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Remembering a token costs at least 4 bytes, 320 KB in the default stream. AddressSanitizer keeps what was freed for a
 * while. */
#ifdef __SANITIZE_ADDRESS__
enum { SLACK = 64 << 20 };
#else
enum { SLACK = 192 << 10 };
#endif
enum { VOCABULARY = 97, PIECE = 2000, WARM = 10 };

static int64_t tokens = 100000;

static int64_t resident(void) {
  long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%*d %lld", &pages), 1);
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

static void check_stream(still_attention_kind kind) {
  still_session_options options = STILL_SESSION_OPTIONS_INIT;
  options.attention = kind;
  options.budget = 192;
  options.window = 64;
  options.context = 8192;
  options.history = 1;
  model_run run = open_run(small_gguf(), &options);
  still_token ids[PIECE];
  still_session_usage first = {0}, now;
  int64_t resident_first = 0;
  for (int64_t done = 0, i = 0; done < tokens; done += PIECE, i++) {
    random_ids(ids, PIECE, VOCABULARY, (uint64_t)i);
    check_ok(still_session_evaluate(run.session, ids, PIECE, NULL, NULL));
    if (i == WARM) {
      still_session_get_usage(run.session, &first);
      resident_first = resident();
    }
  }
  for (int i = 0; i < VOCABULARY; i++) assert_true(isfinite(still_session_logits(run.session)[i]));
  still_session_get_usage(run.session, &now);
  const int64_t grown = resident() - resident_first;
  print_message("%s, %lld tokens: %lld bytes grown\n", still_attention_kind_name(kind),
                (long long)now.tokens, (long long)grown);
  assert_int_equal(now.cache_bytes, first.cache_bytes);
  assert_int_equal(now.work_bytes, first.work_bytes);
  assert_int_equal(now.softmax_tokens + now.forgotten_tokens, now.tokens);
  if (grown > SLACK) fail_msg("resident memory has grown by %lld bytes", (long long)grown);
  close_run(&run);
}

static void still(void **state) {
  (void)state;
  check_stream(STILL_ATTENTION_STILL);
}

static void window(void **state) {
  (void)state;
  check_stream(STILL_ATTENTION_SWA);
}

int main(int argc, char **argv) {
  if (argc > 1) tokens = strtoll(argv[1], NULL, 10);
  const struct CMUnitTest tests[] = {cmocka_unit_test(still), cmocka_unit_test(window)};
  return cmocka_run_group_tests(tests, NULL, check_nothing_allocated);
}

/* SPDX-License-Identifier: MIT
 * A fuzz target is one file fuzz_<name>.c that defines fuzz_one; meson.build makes two programs of
 * it: a libFuzzer one (option fuzz, clang) and one that replays the inputs of corpus/<name> as an
 * ordinary test.
 */
#ifndef STILL_TESTS_FUZZ_H
#define STILL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Feeds one input; must free all it allocates. */
void fuzz_one(const uint8_t *data, size_t bytes);

/* Ends the process where a property does not hold; in every build type. */
#define FUZZ_CHECK(condition)                                                                      \
  do {                                                                                             \
    if (!(condition)) fuzz_broken(#condition, __FILE__, __LINE__);                                 \
  } while (0)
void fuzz_broken(const char *condition, const char *file, int line);

#endif

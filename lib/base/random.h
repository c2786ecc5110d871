/* SPDX-License-Identifier: MIT
 * Reproducible random numbers: xoshiro256** (Blackman and Vigna), seeded by splitmix64. */
#ifndef STILL_BASE_RANDOM_H
#define STILL_BASE_RANDOM_H

#include "base/status.h"

typedef struct still_random {
  uint64_t state[4];
} still_random;

/* A hash of x: splitmix64's output function. */
uint64_t still_hash64(uint64_t x);
/* Mixes a string's bytes into a hash. */
uint64_t still_hash_text(uint64_t hash, const char *text);
/* Mixes bytes into a hash, 8 at a time, the last ones padded with zeros. A checksum against damage, not forgery. */
uint64_t still_hash_bytes(uint64_t hash, const void *data, size_t bytes);
void still_random_seed(still_random *random, uint64_t seed);
uint64_t still_random_u64(still_random *random);
/* Uniform in [0, 1), 24 and 53 random bits. */
float still_random_float(still_random *random);
double still_random_double(still_random *random);
/* Uniform in 0 .. bound-1, bound >= 1, without bias. */
uint64_t still_random_below(still_random *random, uint64_t bound);
/* Standard normal. */
double still_random_normal(still_random *random);
/* Entropy from the operating system. */
still_status still_random_system(uint64_t *out);

#endif

/* SPDX-License-Identifier: MIT */
#include "base/random.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

uint64_t still_hash64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t still_hash_text(uint64_t hash, const char *text) {
  for (; *text; text++) hash = still_hash64(hash ^ (uint8_t)*text);
  return hash;
}

uint64_t still_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const char *at = data;
  for (uint64_t word; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
    memcpy(&word, at, sizeof word);
    hash = still_hash64(hash ^ word);
  }
  uint64_t rest = 0;
  if (!bytes) return hash;
  memcpy(&rest, at, bytes);
  return still_hash64(hash ^ rest);
}

void still_random_seed(still_random *random, uint64_t seed) {
  for (int i = 0; i < 4; i++)
    random->state[i] = still_hash64(seed + (uint64_t)i * 0x9e3779b97f4a7c15u);
}

static uint64_t rotate(uint64_t x, int bits) {
  return (x << bits) | (x >> (64 - bits));
}

uint64_t still_random_u64(still_random *random) {
  uint64_t *s = random->state;
  const uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotate(s[3], 45);
  return result;
}

float still_random_float(still_random *random) {
  return (float)(still_random_u64(random) >> 40) * 0x1p-24f;
}

double still_random_double(still_random *random) {
  return (double)(still_random_u64(random) >> 11) * 0x1p-53;
}

uint64_t still_random_below(still_random *random, uint64_t bound) {
  const uint64_t uneven = (UINT64_MAX % bound + 1) % bound; /* the last, incomplete stretch */
  uint64_t x;
  do x = still_random_u64(random);
  while (x > UINT64_MAX - uneven);
  return x % bound;
}

double still_random_normal(still_random *random) {
  const double radius = sqrt(-2.0 * log(1.0 - still_random_double(random)));
  return radius * cos(6.283185307179586 * still_random_double(random));
}

still_status still_random_system(uint64_t *out) {
  ssize_t got;
  do got = getrandom(out, sizeof *out, 0);
  while (got < 0 && errno == EINTR);
  if (got != (ssize_t)sizeof *out)
    return still_fail(STILL_ERROR_FILE, "the system gave no random bytes: %s", strerror(errno));
  return STILL_OK;
}

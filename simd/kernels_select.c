/* SPDX-License-Identifier: MIT
 * From the machine's level to the table of kernels. */
#include "simd/kernels.h"

#include "base/log.h"
#include "base/status.h"
#include "simd/cpu_level.h"
#include "still_config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct level {
  const char *name;
  void (*fill)(still_kernels *table);
} level;

/* Ascending; each level's table begins as a copy of the one before. */
static const level levels[] = {
    {"portable", still_kernels_portable},
#ifdef STILL_HAVE_AVX2
    {"avx2", still_kernels_avx2},
#endif
#ifdef STILL_HAVE_AVXVNNI
    {"avxvnni", still_kernels_avxvnni},
#endif
#ifdef STILL_HAVE_AVX512
    {"avx512", still_kernels_avx512},
#endif
#ifdef STILL_HAVE_AVX512VNNI
    {"avx512vnni", still_kernels_avx512vnni},
#endif
#ifdef STILL_HAVE_AMX
    {"amx", still_kernels_amx},
#endif
#ifdef STILL_HAVE_NEON
    {"neon", still_kernels_neon},
#endif
#ifdef STILL_HAVE_NEONDOT
    {"neondot", still_kernels_neondot},
#endif
};
enum { LEVELS = sizeof levels / sizeof levels[0] };

static still_kernels tables[LEVELS + 1]; /* one to spare: a build may hold a single level */
static const char *names[LEVELS + 1];    /* those this machine can run */
static _Atomic(const still_kernels *) current;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void) {
  int usable = 0;
  for (int i = 0; i < LEVELS; i++) {
    if (!still_cpu_has(levels[i].name)) continue;
    if (usable) tables[usable] = tables[usable - 1];
    levels[i].fill(&tables[usable]);
    tables[usable].name = levels[i].name;
    names[usable++] = levels[i].name;
  }
  const char *wanted = getenv("STILL_CPU");
  int chosen = usable - 1;
  for (int i = 0; wanted && i < usable; i++)
    if (!strcmp(wanted, names[i])) chosen = i;
  atomic_store(&current, &tables[chosen]);
  if (wanted && strcmp(wanted, names[chosen]))
    still_log(STILL_LOG_WARNING, "STILL_CPU=%s is not possible here, using %s", wanted,
              names[chosen]);
  still_log(STILL_LOG_INFO, "CPU kernels: %s", names[chosen]);
}

const still_kernels *still_kernels_get(void) {
  const still_kernels *table = atomic_load_explicit(&current, memory_order_acquire);
  if (table) return table;
  pthread_once(&once, fill_tables);
  return atomic_load(&current);
}

const still_kernels *still_kernels_level(const char *name) {
  pthread_once(&once, fill_tables);
  for (int i = 0; names[i]; i++)
    if (!strcmp(names[i], name)) return &tables[i];
  return NULL;
}

const char *const *still_kernels_levels(void) {
  pthread_once(&once, fill_tables);
  return names;
}

still_status still_set_cpu_level(const char *name) {
  pthread_once(&once, fill_tables);
  int last = 0;
  char known[128] = "";
  for (int i = 0; names[i]; i++) {
    last = i;
    strcat(strcat(known, i ? ", " : ""), names[i]);
  }
  const still_kernels *table = name ? still_kernels_level(name) : &tables[last];
  if (!table)
    return still_fail(STILL_ERROR_ARGUMENT, "CPU level '%s' is not possible here; one of: %s", name,
                      known);
  atomic_store(&current, table);
  return STILL_OK;
}

const char *still_cpu_level(void) {
  return still_kernels_get()->name;
}

/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "base/threads.h"

#include "still_config.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if STILL_HAVE_OPENBLAS
#include <cblas.h>
#endif

/* Stacks of 8 MiB; libgomp ends the process where one finds no address. */
enum { MOST_THREADS = sizeof(void *) < 8 ? 64 : 1024 };

double still_cgroup_quota_v2(const char *text) {
  long long quota, period;
  return sscanf(text, "%lld %lld", &quota, &period) == 2 ? still_cgroup_quota_v1(quota, period) : 0;
}

double still_cgroup_quota_v1(long long quota, long long period) {
  return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static int read_line(const char *path, char *line, size_t bytes) {
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  const int ok = fgets(line, (int)bytes, file) != NULL;
  fclose(file);
  return ok;
}

/* The path of this process's group under a controller: "" for v2's single hierarchy. */
static int group_path(const char *controller, char *out, size_t bytes) {
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return 0;
  char line[1024];
  int found = 0;
  while (!found && fgets(line, sizeof line, file)) {
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path) continue;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    found = *controller ? strstr(names + 1, controller) != NULL : !names[1];
    if (found) snprintf(out, bytes, "%s", path);
  }
  fclose(file);
  return found;
}

static double smaller_quota(double a, double b) {
  return !a || (b && b < a) ? b : a;
}

/* The tightest quota from this process's group up to the root. */
static double walk_groups(const char *root, char *group, int version) {
  double quota = 0;
  for (;;) {
    char path[2200], line[128];
    if (version == 2) {
      snprintf(path, sizeof path, "%s%s/cpu.max", root, group);
      if (read_line(path, line, sizeof line))
        quota = smaller_quota(quota, still_cgroup_quota_v2(line));
    } else {
      long long microseconds = 0;
      snprintf(path, sizeof path, "%s%s/cpu.cfs_quota_us", root, group);
      if (read_line(path, line, sizeof line)) microseconds = atoll(line);
      snprintf(path, sizeof path, "%s%s/cpu.cfs_period_us", root, group);
      if (read_line(path, line, sizeof line))
        quota = smaller_quota(quota, still_cgroup_quota_v1(microseconds, atoll(line)));
    }
    char *slash = strrchr(group, '/');
    if (!slash || !*group) return quota;
    *slash = 0;
  }
}

static double cgroup_quota(void) {
  char group[1024];
  double quota = 0;
  if (group_path("", group, sizeof group)) quota = walk_groups("/sys/fs/cgroup", group, 2);
  if (group_path("cpu", group, sizeof group))
    quota = smaller_quota(quota, walk_groups("/sys/fs/cgroup/cpu", group, 1));
  return quota;
}

/* Allowed processors that are the first of their core: hyper-threads are counted once. */
static int allowed_cores(void) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return (int)sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t seen;
  CPU_ZERO(&seen);
  int cores = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed) || CPU_ISSET(cpu, &seen)) continue;
    cores++;
    CPU_SET(cpu, &seen);
    char path[128], line[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!read_line(path, line, sizeof line)) continue;
    for (char *at = line; isdigit((unsigned char)*at);) { /* "0,64" or "0-1" */
      long first = strtol(at, &at, 10), last = first;
      if (*at == '-') last = strtol(at + 1, &at, 10);
      for (long i = first; i <= last && i < CPU_SETSIZE; i++) CPU_SET((int)i, &seen);
      if (*at == ',') at++;
    }
  }
  return cores;
}

int still_default_threads(void) {
  int threads = allowed_cores();
  const double quota = cgroup_quota();
  if (quota > 0 && quota < threads) threads = (int)quota;
  return threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
}

int still_resolve_threads(int requested) {
  if (requested <= 0) return still_default_threads();
  return requested > MOST_THREADS ? MOST_THREADS : requested;
}

void still_blas_threads(int threads) {
#if STILL_HAVE_OPENBLAS
  openblas_set_num_threads(threads);
#else
  (void)threads;
#endif
}

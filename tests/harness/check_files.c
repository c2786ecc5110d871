/* SPDX-License-Identifier: MIT
 * Files and programs. */
#define _XOPEN_SOURCE 700
#include "harness/check.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- strings that live until exit */

typedef struct kept {
  struct kept *next;
  char text[];
} kept;

static kept *all_kept;
static char folder[64];
static pid_t owner; /* children that never reach exec must not clean up */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
  (void)info;
  (void)kind;
  (void)place;
  return remove(path);
}

static void clean_up(void) {
  if (getpid() != owner) return;
  if (*folder) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  while (all_kept) {
    kept *next = all_kept->next;
    free(all_kept);
    all_kept = next;
  }
}

static char *keep(const char *first, const char *second) {
  if (!owner) {
    owner = getpid();
    atexit(clean_up);
  }
  const size_t bytes = strlen(first) + strlen(second) + 2;
  kept *entry = malloc(sizeof *entry + bytes);
  if (!entry) abort();
  snprintf(entry->text, bytes, "%s/%s", first, second);
  entry->next = all_kept;
  all_kept = entry;
  return entry->text;
}

/* ---- files */

static void make_parents(char *path) {
  for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
  }
}

const char *check_path(const char *name) {
  if (!*folder) {
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/still-test-XXXXXX",
             root && strlen(root) < 40 ? root : "/tmp");
    if (!mkdtemp(folder)) fail_msg("cannot make %s", folder);
  }
  char *path = keep(folder, name);
  make_parents(path);
  return path;
}

const char *check_file(const char *name, const void *data, size_t bytes) {
  const char *path = check_path(name);
  FILE *stream = fopen(path, "wb");
  if (!stream || (bytes && fwrite(data, 1, bytes, stream) != bytes) || fclose(stream))
    fail_msg("cannot write %s", path);
  return path;
}

char *check_read(const char *path, size_t *bytes) {
  FILE *stream = fopen(path, "rb");
  if (!stream || fseek(stream, 0, SEEK_END)) fail_msg("cannot read %s", path);
  const long length = ftell(stream);
  char *text = malloc((size_t)length + 1);
  rewind(stream);
  if (!text || fread(text, 1, (size_t)length, stream) != (size_t)length)
    fail_msg("cannot read %s", path);
  fclose(stream);
  text[length] = 0;
  if (bytes) *bytes = (size_t)length;
  return text;
}

const char *check_shared(const char *name) {
  const char *root = getenv("STILL_SHARED");
  const char *path = root ? keep(root, name) : NULL;
  if (!path || access(path, R_OK)) skip();
  return path;
}

/* ---- programs */

static void redirect(const char *path, int flags, int to) {
  const int handle = open(path, flags, 0600);
  if (handle < 0 || dup2(handle, to) < 0) _exit(126);
  close(handle);
}

static void become(const char *const *argv, const char *const *paths,
                   const char *const *environment) {
  redirect(paths[0], O_RDONLY, 0);
  redirect(paths[1], O_WRONLY | O_CREAT | O_TRUNC, 1);
  redirect(paths[2], O_WRONLY | O_CREAT | O_TRUNC, 2);
  for (; environment && *environment; environment++) putenv((char *)(uintptr_t)*environment);
  alarm(60); /* outlives exec */
  execvp(argv[0], (char *const *)(uintptr_t)argv);
  _exit(127);
}

check_run_result check_run(const char *const *argv, const char *input,
                           const char *const *environment) {
  static int runs;
  char name[32];
  const char *paths[3];
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "run-%d-%d", runs, i);
    paths[i] = check_file(name, i || !input ? "" : input, i || !input ? 0 : strlen(input));
  }
  runs++;
  fflush(NULL);
  const pid_t child = fork();
  if (child < 0) fail_msg("cannot fork");
  if (!child) become(argv, paths, environment);
  int status;
  while (waitpid(child, &status, 0) < 0) {
  }
  check_run_result result = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)};
  result.out = check_read(paths[1], &result.out_bytes);
  result.error = check_read(paths[2], &result.error_bytes);
  for (int i = 0; i < 3; i++) unlink(paths[i]);
  return result;
}

void check_run_free(check_run_result *result) {
  free(result->out);
  free(result->error);
  memset(result, 0, sizeof *result);
}

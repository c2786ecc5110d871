/* SPDX-License-Identifier: MIT
 * The common half of a fuzz target: libFuzzer's entry, or (STILL_FUZZ_REPLAY) a main that feeds it
 * the files and folders of its arguments. */
#include "fuzz.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

void fuzz_broken(const char *condition, const char *file, int line) {
  fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const uint64_t before = still_allocated_bytes();
  fuzz_one(data, bytes);
  FUZZ_CHECK(still_allocated_bytes() == before);
  return 0;
}

#ifdef STILL_FUZZ_REPLAY

#include <dirent.h>
#include <sys/stat.h>

static size_t inputs;

static void replay_file(const char *path) {
  FILE *stream = fopen(path, "rb");
  if (!stream || fseek(stream, 0, SEEK_END)) {
    perror(path);
    exit(1);
  }
  const size_t bytes = (size_t)ftell(stream);
  uint8_t *data = malloc(bytes + !bytes); /* exactly its size, for sanitizers */
  rewind(stream);
  if (!data || fread(data, 1, bytes, stream) != bytes) exit(1);
  fclose(stream);
  printf("%s\n", path); /* flushed where it crashes: stdout is a pipe that abort() does not flush */
  fflush(stdout);
  LLVMFuzzerTestOneInput(data, bytes);
  free(data);
  inputs++;
}

static void replay(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) {
    replay_file(path);
    return;
  }
  for (struct dirent *entry; (entry = readdir(folder));) {
    char child[4096];
    if (entry->d_name[0] == '.') continue;
    snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
    replay(child);
  }
  closedir(folder);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) replay(argv[i]);
  printf("%zu inputs\n", inputs);
  return inputs ? 0 : 1; /* a test that ran nothing has not passed */
}

#endif

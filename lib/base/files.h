/* SPDX-License-Identifier: MIT
 * Whole-file access: map or read for input, all-or-nothing for output. */
#ifndef STILL_BASE_FILES_H
#define STILL_BASE_FILES_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>

/* A file's bytes, mapped or read. */
typedef struct still_file {
  const uint8_t *data;
  size_t bytes;
  bool mapped;
  char *path;
} still_file;

/* Opens for reading. use_mmap false reads everything into memory. An empty file gives bytes 0. FILE (with
 * the system's reason), MEMORY. Directories are refused. */
still_status still_file_open(still_file *file, const char *path, bool use_mmap);
void still_file_close(still_file *file);
/* Gives back the memory of a mapped file's pages; they come again, from the system's cache or the disk, when they are
 * read. */
void still_file_forget(const still_file *file);
/* Of the file of that name; 0 where there is none. */
uint64_t still_file_bytes(const char *path);

/* Reads a small text file whole; *text is NUL-terminated (the NUL not counted in *bytes), freed by the caller with
 * still_free. limit: more bytes than that are refused. */
still_status still_read_text(const char *path, size_t limit, char **text, size_t *bytes);

/* Output that appears only when complete: bytes go to a temporary file in the same folder. A device or pipe is
 * written in place. */
typedef struct still_output {
  FILE *stream;
  char *path;
  char *target; /* the path behind symbolic links; NULL = written in place */
  char *temporary;
} still_output;

still_status still_output_open(still_output *output, const char *path);
still_status still_output_write(still_output *output, const void *data, size_t bytes);
/* Flushes, syncs and renames over path (a link stays a link). On failure the old file is untouched. Either way the
 * output is closed. */
still_status still_output_commit(still_output *output);
/* Drops what was written. Fine after commit and on a zeroed struct. */
void still_output_abandon(still_output *output);

/* folder/name, freed with still_free. */
still_status still_join_path(char **out, const char *folder, const char *name);
bool still_path_exists(const char *path);
bool still_path_is_folder(const char *path);

#endif

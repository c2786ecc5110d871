/* SPDX-License-Identifier: MIT */
#include "base/files.h"

#include "base/memory.h"
#include "base/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static still_status fail_system(const char *path, const char *what) {
  return still_fail(STILL_ERROR_FILE, "%s: %s: %s", path, what, strerror(errno));
}

static still_status read_all(int handle, const char *path, uint8_t *data, size_t bytes) {
  enum { PIECE = 8 << 20 }; /* a few milliseconds */
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(handle, data + done, still_smaller(bytes - done, PIECE));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_system(path, "cannot read");
    if (!got)
      return still_fail(STILL_ERROR_FILE, "%s: the file shrank to %zu of %zu bytes while reading",
                        path, done, bytes);
    done += (size_t)got;
    STILL_TRY(still_progress_add((uint64_t)got));
  }
  return STILL_OK;
}

static still_status fill(still_file *file, int handle, const char *path, bool use_mmap) {
  struct stat info;
  if (fstat(handle, &info)) return fail_system(path, "cannot read");
  if (!S_ISREG(info.st_mode)) return still_fail(STILL_ERROR_FILE, "%s: not a regular file", path);
  if ((uintmax_t)info.st_size > PTRDIFF_MAX)
    return still_fail(STILL_ERROR_FILE, "%s: %ju bytes, more than a %zu-bit program can address",
                      path, (uintmax_t)info.st_size, 8 * sizeof(size_t));
  file->bytes = (size_t)info.st_size;
  if (!file->bytes) return STILL_OK;
  if (use_mmap) {
    void *data = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, handle, 0);
    if (data != MAP_FAILED) {
      file->data = data;
      file->mapped = true;
      return STILL_OK;
    }
  }
  void *data;
  STILL_TRY(still_alloc_raw(&data, file->bytes, path));
  file->data = data;
  return read_all(handle, path, data, file->bytes);
}

still_status still_file_open(still_file *file, const char *path, bool use_mmap) {
  memset(file, 0, sizeof *file);
  const int handle =
      open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not awaited */
  if (handle < 0) return fail_system(path, "cannot open");
  still_status status = still_copy_string(&file->path, path);
  if (!status) status = fill(file, handle, path, use_mmap);
  close(handle);
  if (status) still_file_close(file);
  return status;
}

void still_file_close(still_file *file) {
  if (file->mapped)
    munmap((void *)(uintptr_t)file->data, file->bytes);
  else
    still_free((void *)(uintptr_t)file->data);
  still_free(file->path);
  memset(file, 0, sizeof *file);
}

void still_file_forget(const still_file *file) {
  if (file->mapped) madvise((void *)(uintptr_t)file->data, file->bytes, MADV_DONTNEED);
}

uint64_t still_file_bytes(const char *path) {
  struct stat info;
  return stat(path, &info) ? 0 : (uint64_t)info.st_size;
}

still_status still_read_text(const char *path, size_t limit, char **text, size_t *bytes) {
  *text = NULL;
  still_file file;
  STILL_TRY(still_file_open(&file, path, false));
  still_status status = STILL_OK;
  if (file.bytes > limit)
    status = still_fail(STILL_ERROR_FORMAT, "%s: %zu bytes, at most %zu are allowed", path,
                        file.bytes, limit);
  if (!status) status = still_alloc((void **)text, file.bytes + 1, 1, path);
  if (!status) {
    if (file.bytes) memcpy(*text, file.data, file.bytes);
    *bytes = file.bytes;
  }
  still_file_close(&file);
  return status;
}

/* The name to rename over: behind symbolic links, so that a link stays one. NULL = write in place, since a
 * device or pipe must not be replaced by a file. */
static still_status find_target(const char *path, char **target) {
  struct stat info;
  *target = NULL;
  if (stat(path, &info)) return still_copy_string(target, path); /* new, or mkstemp says why not */
  if (S_ISDIR(info.st_mode)) return still_fail(STILL_ERROR_FILE, "%s: is a folder", path);
  if (!S_ISREG(info.st_mode)) return STILL_OK;
  char *real = realpath(path, NULL);
  if (!real) return fail_system(path, "cannot find");
  still_status status = still_copy_string(target, real);
  free(real);
  return status;
}

static still_status open_temporary(still_output *output) {
  const size_t bytes = strlen(output->target) + sizeof ".XXXXXX";
  STILL_TRY(still_alloc((void **)&output->temporary, bytes, 1, output->path));
  snprintf(output->temporary, bytes, "%s.XXXXXX", output->target);
  const int handle = mkstemp(output->temporary);
  if (handle < 0) {
    still_free(output->temporary);
    output->temporary = NULL;
    return fail_system(output->path, "cannot create a file there");
  }
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(handle, 0666 & ~mask);
  output->stream = fdopen(handle, "wb");
  if (output->stream) return STILL_OK;
  still_status status = fail_system(output->path, "cannot write");
  close(handle);
  return status;
}

still_status still_output_open(still_output *output, const char *path) {
  memset(output, 0, sizeof *output);
  still_status status = still_copy_string(&output->path, path);
  if (!status) status = find_target(path, &output->target);
  if (!status && output->target) {
    status = open_temporary(output);
  } else if (!status && !(output->stream = fopen(path, "wb"))) {
    status = fail_system(path, "cannot write");
  }
  if (status) still_output_abandon(output);
  return status;
}

still_status still_output_write(still_output *output, const void *data, size_t bytes) {
  if (bytes && fwrite(data, 1, bytes, output->stream) != bytes)
    return fail_system(output->path, "cannot write");
  return STILL_OK;
}

still_status still_output_commit(still_output *output) {
  still_status status = STILL_OK;
  if (fflush(output->stream) || (output->temporary && fsync(fileno(output->stream))))
    status = fail_system(output->path, "cannot write");
  if (fclose(output->stream) && !status) status = fail_system(output->path, "cannot write");
  output->stream = NULL;
  if (!status && output->temporary && rename(output->temporary, output->target))
    status = fail_system(output->path, "cannot replace");
  if (!status) {
    still_free(output->temporary);
    output->temporary = NULL;
  }
  still_output_abandon(output);
  return status;
}

void still_output_abandon(still_output *output) {
  if (output->stream) fclose(output->stream);
  if (output->temporary) unlink(output->temporary);
  still_free(output->temporary);
  still_free(output->target);
  still_free(output->path);
  memset(output, 0, sizeof *output);
}

still_status still_join_path(char **out, const char *folder, const char *name) {
  const size_t length = strlen(folder), bytes = length + strlen(name) + 2;
  STILL_TRY(still_alloc((void **)out, bytes, 1, "a path"));
  snprintf(*out, bytes, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/", name);
  return STILL_OK;
}

bool still_path_exists(const char *path) {
  struct stat info;
  return !stat(path, &info);
}

bool still_path_is_folder(const char *path) {
  struct stat info;
  return !stat(path, &info) && S_ISDIR(info.st_mode);
}

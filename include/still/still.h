/* SPDX-License-Identifier: MIT
 *
 * libstill: STILL attention (arXiv 2602.02180) for Llama-family language models.
 *
 * This header holds what every part of the library shares: version, status codes, logging, memory,
 * the choice of CPU kernels, threads and devices. The other headers build on it:
 *
 *   still/attention.h   the attention operator alone, on plain float arrays
 *   still/model.h       load a model, hold a conversation, sample text
 *   still/linearize.h   train feature maps, gates and LoRA: turn a pretrained model into a STILL model
 *   still/evaluate.h    measure a model: retrieval, reasoning, multiple choice, perplexity
 *
 * General rules, stated once:
 *
 *  - Every call that can fail returns a still_status. The sentence that explains a failure (what,
 *    where, which range is allowed) is still_last_error(), kept per thread.
 *  - On failure outputs are undefined, inputs and existing objects are unchanged.
 *  - Objects are opaque. *_create / *_open write the handle through their first argument; *_destroy
 *    accepts NULL.
 *  - Options are structs with a size member and an initializer macro: declare them as
 *        still_session_options options = STILL_SESSION_OPTIONS_INIT;
 *    and change what you need. Passing NULL for options means all defaults.
 *  - The library never prints, exits, aborts or installs signal handlers. Messages go to the log
 *    callback, none by default.
 *  - Sizes are in bytes where the name says bytes, in floats or tokens where it says so.
 *  - Thread-safety is stated for each object. Where nothing is said, a function may be called from
 *    any thread at any time.
 */
#ifndef STILL_STILL_H
#define STILL_STILL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ---------------------------------------------------------------------------------
 * Semantic versioning. The SONAME of the shared library is STILL_VERSION_MAJOR. */
#define STILL_VERSION_MAJOR 0
#define STILL_VERSION_MINOR 1
#define STILL_VERSION_PATCH 0

#if defined(STILL_BUILDING_LIBRARY) && defined(__GNUC__)
#define STILL_API __attribute__((visibility("default")))
#else
#define STILL_API
#endif

/* The version of the library that is linked in, "major.minor.patch". */
STILL_API const char *still_version(void);

/* ---- status ---------------------------------------------------------------------------------- */

typedef enum still_status {
  STILL_OK = 0,
  STILL_ERROR_ARGUMENT = 1,    /* an argument or option is outside its allowed range */
  STILL_ERROR_MEMORY = 2,      /* an allocation failed */
  STILL_ERROR_FILE = 3,        /* a file cannot be opened, read, written or mapped */
  STILL_ERROR_FORMAT = 4,      /* a file's content is damaged or contradicts itself */
  STILL_ERROR_UNSUPPORTED = 5, /* well-formed, but of a kind that this library does not know */
  STILL_ERROR_NUMERIC = 6,     /* a NaN or infinity where a number must stand */
  STILL_ERROR_CANCELLED = 7,   /* the caller's cancel flag or progress callback said stop */
  STILL_ERROR_DEVICE = 8,      /* a GPU or its driver failed */
  STILL_ERROR_LIMIT = 9        /* the session's context is full */
} still_status;

/* A few words for a status, e.g. "damaged file". Never NULL; static storage. */
STILL_API const char *still_status_text(still_status status);

/* The sentence of the last failed call on the calling thread, "" if none failed yet. Valid until the
 * next failing call on this thread. Successful calls leave it as it was. */
STILL_API const char *still_last_error(void);

/* ---- log -------------------------------------------------------------------------------------- */

typedef enum still_log_level {
  STILL_LOG_ERROR = 0, /* something the caller asked for did not happen */
  STILL_LOG_WARNING =
      1,              /* it happened, but perhaps not as meant (e.g. beyond the trained context) */
  STILL_LOG_INFO = 2, /* choices made: kernels, threads, device */
  STILL_LOG_DEBUG = 3 /* for people who work on the library */
} still_log_level;

/* message: one line without the line feed. May be called from any thread that calls the library. */
typedef void still_log_callback(void *user, still_log_level level, const char *message);

/* Sends messages up to and including `level` to `callback`; NULL turns logging off (the default).
 * Not thread-safe against running calls: set it first. */
STILL_API void still_set_log(still_log_callback *callback, void *user, still_log_level level);

/* ---- progress and cancellation ----------------------------------------------------------------
 * Long calls report `done` of `total` units (bytes loaded, tokens evaluated, steps trained); total is
 * 0 where unknown. Called on the calling thread at least every 50 ms of work where the work can be
 * cut that finely. Return 0 to go on, anything else to stop: the call then returns
 * STILL_ERROR_CANCELLED. */
typedef int still_progress_callback(void *user, uint64_t done, uint64_t total);

/* ---- memory ------------------------------------------------------------------------------------ */

/* A replacement for the library's allocator. allocate returns at least `bytes` bytes aligned to
 * `alignment` (a power of two), or NULL. Both are called from any thread. */
typedef struct still_allocator {
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *pointer, size_t bytes);
  void *user;
} still_allocator;

/* Installs an allocator for the whole process, NULL the default one. Only allowed while the library
 * holds no memory (STILL_ERROR_ARGUMENT otherwise). The struct is copied.
 *
 * What does not come from it: the trees of JSON files, by cJSON, whose hooks are one for the whole process and so left to
 * the host. They are gone when the call that reads the file returns, and never take more than 40 times its bytes (a list of
 * one-digit numbers; 3 to 8 times for real tokenizers and configurations). Besides that, what OpenBLAS, the OpenMP runtime,
 * Vulkan drivers and the C library (open files) keep for themselves. */
STILL_API still_status still_set_allocator(const still_allocator *allocator);

/* Bytes that the library holds now, and the most it has held since still_reset_peak_bytes(). Mapped
 * files and device memory are not in it. */
STILL_API uint64_t still_allocated_bytes(void);
STILL_API uint64_t still_peak_bytes(void);
STILL_API void still_reset_peak_bytes(void);

/* ---- CPU kernels and threads -------------------------------------------------------------------- */

/* Limits the CPU kernels to a level: "portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amx",
 * "neon" or "neondot", or NULL for
 * the best this machine has. A level that the machine lacks or that this build does not hold is an
 * error that lists the possible ones. The environment variable STILL_CPU says the same at start-up
 * (an unknown word there is logged and ignored). Not thread-safe against running calls. */
STILL_API still_status still_set_cpu_level(const char *level);

/* The level in use, e.g. "avx2". Static storage. */
STILL_API const char *still_cpu_level(void);

/* Threads that a call uses when its options say 0: the smallest of the physical cores, the process's
 * affinity mask and its cgroup CPU quota (rounded down), at least 1. Results do not depend on the
 * number of threads, bit for bit. */
STILL_API int still_default_threads(void);

/* ---- devices ------------------------------------------------------------------------------------ */

typedef enum still_device_kind {
  STILL_DEVICE_CPU = 0,
  STILL_DEVICE_DISCRETE_GPU = 1,
  STILL_DEVICE_INTEGRATED_GPU = 2,
  STILL_DEVICE_SOFTWARE_GPU = 3 /* a Vulkan driver that runs on the CPU; used only when named */
} still_device_kind;

typedef struct still_device_info {
  char name[32];         /* what options and -dev take: "cpu", "vulkan:0" ... */
  char description[256]; /* for people: "NVIDIA H200, driver 580.159" */
  still_device_kind kind;
  uint64_t memory_bytes; /* device-local memory, 0 for the CPU */
} still_device_info;

/* Fills at most `capacity` entries and sets *count to how many there are. devices may be NULL when
 * capacity is 0. The CPU always comes first. A machine without Vulkan is no error. */
STILL_API still_status still_list_devices(still_device_info *devices, size_t capacity,
                                          size_t *count);

/* A Vulkan device that the application has made, to run on instead of one of the library's own, so that both can use the
 * same buffers (still_attention_forward_buffers). Handles are those of vulkan.h, which this header does without. */
typedef struct still_shared_device {
  size_t size;           /* set by STILL_SHARED_DEVICE_INIT */
  void *instance;        /* VkInstance, for Vulkan 1.1 or newer */
  void *physical_device; /* VkPhysicalDevice */
  void *device;          /* VkDevice */
  void *queue;           /* VkQueue, of a family with compute */
  uint32_t queue_family;
  int float16; /* 1: the device was made with storageBuffer16BitAccess and shaderFloat16 */
  int cooperative_matrix; /* 1: and with VK_KHR_cooperative_matrix and vulkanMemoryModel (Vulkan 1.2) */
  void (*lock)(
      void *user); /* called around every submission to the queue, by the thread that uses */
  void (*unlock)(void *user); /* the library; NULL: nobody else submits to it meanwhile */
  void *user;
} still_shared_device;

#define STILL_SHARED_DEVICE_INIT                                                                   \
  { sizeof(still_shared_device), NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL }

/* Makes the device known under a name ("vulkan:shared0"), which can stand wherever a device is named. The application keeps
 * all its objects and must not destroy them before still_unshare_device. Errors: ARGUMENT, MEMORY, DEVICE (too old, or this
 * build or machine has no Vulkan). Thread-safe. */
STILL_API still_status still_share_device(const still_shared_device *device, char name[32]);
/* Takes it back. ARGUMENT if no device has this name or plans, models or sessions still use it. */
STILL_API still_status still_unshare_device(const char *name);

#ifdef __cplusplus
}
#endif

#endif

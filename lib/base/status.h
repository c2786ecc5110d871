/* SPDX-License-Identifier: MIT
 * Errors: set a sentence, return a code. */
#ifndef STILL_BASE_STATUS_H
#define STILL_BASE_STATUS_H

#include <still/still.h>

/* Stores the sentence for still_last_error() on this thread and returns status. The sentence names the
 * thing, where it is, and what would be right: "model.gguf: tensor 'blk.0.attn_q.weight': ...". */
still_status still_fail(still_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts "<prefix>: " before the sentence of a failure that is passed on; returns status. */
still_status still_fail_in(still_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Passes a failure on. */
#define STILL_TRY(call)                                                                            \
  do {                                                                                             \
    const still_status try_status_ = (call);                                                       \
    if (try_status_) return try_status_;                                                           \
  } while (0)

/* The same inside a function with one clean-up label; needs `still_status status` in scope. */
#define STILL_TRY_GOTO(call, label)                                                                \
  do {                                                                                             \
    status = (call);                                                                               \
    if (status) goto label;                                                                        \
  } while (0)

/* Objects whose first member is `size_t size` and that may be shorter (older) or longer than ours. */
#define STILL_CHECK_OPTIONS_SIZE(options, type)                                                    \
  ((options)->size == sizeof(type)                                                                 \
       ? STILL_OK                                                                                  \
       : still_fail(STILL_ERROR_ARGUMENT, #type ".size is %zu, must be %zu: use the INIT macro",   \
                    (options)->size, sizeof(type)))

#endif

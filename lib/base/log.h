/* SPDX-License-Identifier: MIT
 * One line to the host's log callback. */
#ifndef STILL_BASE_LOG_H
#define STILL_BASE_LOG_H

#include <still/still.h>

void still_log(still_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

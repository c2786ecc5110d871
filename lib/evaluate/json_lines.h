/* SPDX-License-Identifier: MIT
 * Files of JSON lines. */
#ifndef STILL_EVALUATE_JSON_LINES_H
#define STILL_EVALUATE_JSON_LINES_H

#include "formats/json.h"

/* Calls `line` for each line that is not blank; its document is freed afterwards. FILE, FORMAT (with
 * file and line, also for what `line` refuses). A file without a line is refused. */
still_status still_json_lines(const char *path,
                              still_status (*line)(void *user, const still_json *document),
                              void *user);

/* Whether a text has nothing but white space. */
bool still_is_blank(const char *text);

#endif

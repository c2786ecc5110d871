/* SPDX-License-Identifier: MIT
 * The salient cache: chosen tokens, appended in order of position, never rescored, never evicted.
 */
#include "attention/attention_stages.h"

void still_keep_chosen(still_kept *kept, int64_t already, const still_key_store *near,
                       int64_t first, const unsigned char *chosen, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!chosen[i]) continue;
    still_key_store_copy(&kept->store, already, near, first + (int64_t)i);
    kept->positions[already++] = first + (int64_t)i;
  }
}

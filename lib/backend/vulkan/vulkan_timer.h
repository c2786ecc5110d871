/* SPDX-License-Identifier: MIT
 * Time on the device: of each submission always, of each shader while profiling. */
#ifndef STILL_VULKAN_TIMER_H
#define STILL_VULKAN_TIMER_H

#include "backend/vulkan/vulkan_commands.h"

enum { STILL_VULKAN_TIMED_SHADERS = 96 };

typedef struct still_vulkan_time {
  const char *shader;
  double seconds, work;
  uint64_t runs;
} still_vulkan_time;

typedef struct still_vulkan_timer {
  bool logs; /* STILL_VULKAN_PROFILE: profiles from the beginning, logs the times in the end */
  bool
      profiling; /* puts a barrier before every dispatch and a timestamp around it; set while nothing is recorded */
  VkQueryPool pools[STILL_VULKAN_SLOTS];
  const still_vulkan_pipeline **marks[STILL_VULKAN_SLOTS]; /* what ran, by dispatch */
  double *mark_work[STILL_VULKAN_SLOTS];
  uint32_t marked[STILL_VULKAN_SLOTS];
  still_vulkan_time times[STILL_VULKAN_TIMED_SHADERS];
  uint32_t count;
  uint64_t first,
      last; /* timestamps of the first begin and the last end since the last clear, in ticks */
} still_vulkan_timer;

still_status still_vulkan_timer_create(still_vulkan *vulkan);
void still_vulkan_timer_destroy(still_vulkan *vulkan);
void still_vulkan_timer_clear(still_vulkan *vulkan);
/* From the begin of the first submission after the last clear to the end of the last that was waited for; 0 without timestamps. */
double still_vulkan_timer_span(const still_vulkan *vulkan);

/* Called by the recording of a slot. */
void still_vulkan_timer_begin(still_vulkan *vulkan, uint32_t slot);
void still_vulkan_timer_before(still_vulkan *vulkan, uint32_t slot,
                               const still_vulkan_dispatch *dispatch);
void still_vulkan_timer_after(still_vulkan *vulkan, uint32_t slot);
void still_vulkan_timer_end(still_vulkan *vulkan, uint32_t slot);
/* Adds the finished slot's times; *seconds becomes the device's time where it has timestamps. */
void still_vulkan_timer_collect(still_vulkan *vulkan, uint32_t slot, double *seconds);

#endif

/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_timer.h"

#include "backend/vulkan/vulkan_device.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>

/* Query 0 and 1: begin and end of the submission; 2 + 2 i and 3 + 2 i: around dispatch i. */
enum { QUERIES = 2 + 2 * STILL_VULKAN_DISPATCHES };

still_status still_vulkan_timer_create(still_vulkan *vulkan) {
  still_vulkan_timer *timer = &vulkan->timer;
  timer->profiling = timer->logs = getenv("STILL_VULKAN_PROFILE") != NULL;
  for (int i = 0; i < STILL_VULKAN_SLOTS; i++) {
    STILL_TRY(STILL_ALLOC(&timer->marks[i], STILL_VULKAN_DISPATCHES, "timer"));
    STILL_TRY(STILL_ALLOC(&timer->mark_work[i], STILL_VULKAN_DISPATCHES, "timer"));
    if (vulkan->limits.timestamp_ns <= 0) continue;
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = QUERIES};
    VK_TRY(vulkan->call.vkCreateQueryPool(vulkan->device, &info, NULL, &timer->pools[i]));
  }
  return STILL_OK;
}

static void log_times(const still_vulkan *vulkan) {
  for (uint32_t i = 0; i < vulkan->timer.count; i++) {
    const still_vulkan_time *time = &vulkan->timer.times[i];
    still_log(STILL_LOG_INFO, "%s: %-28s %10.3f ms in %6llu runs, %9.3f T/s", vulkan->name,
              time->shader, 1e3 * time->seconds, (unsigned long long)time->runs,
              time->work / time->seconds / 1e12);
  }
}

void still_vulkan_timer_destroy(still_vulkan *vulkan) {
  still_vulkan_timer *timer = &vulkan->timer;
  if (timer->logs) log_times(vulkan);
  for (int i = 0; i < STILL_VULKAN_SLOTS; i++) {
    still_free(timer->marks[i]);
    still_free(timer->mark_work[i]);
    if (timer->pools[i]) vulkan->call.vkDestroyQueryPool(vulkan->device, timer->pools[i], NULL);
  }
}

void still_vulkan_timer_clear(still_vulkan *vulkan) {
  vulkan->timer.count = 0;
  vulkan->timer.first = UINT64_MAX;
  vulkan->timer.last = 0;
}

static void stamp(still_vulkan *vulkan, uint32_t slot, VkPipelineStageFlagBits stage,
                  uint32_t query) {
  if (vulkan->timer.pools[slot])
    vulkan->call.vkCmdWriteTimestamp(vulkan->commands.slots[slot].commands, stage,
                                     vulkan->timer.pools[slot], query);
}

void still_vulkan_timer_begin(still_vulkan *vulkan, uint32_t slot) {
  vulkan->timer.marked[slot] = 0;
  if (!vulkan->timer.pools[slot]) return;
  vulkan->call.vkCmdResetQueryPool(vulkan->commands.slots[slot].commands, vulkan->timer.pools[slot],
                                   0, QUERIES);
  stamp(vulkan, slot, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, 0);
}

void still_vulkan_timer_end(still_vulkan *vulkan, uint32_t slot) {
  stamp(vulkan, slot, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, 1);
}

void still_vulkan_timer_before(still_vulkan *vulkan, uint32_t slot,
                               const still_vulkan_dispatch *dispatch) {
  still_vulkan_timer *timer = &vulkan->timer;
  if (!timer->profiling) return;
  timer->marks[slot][timer->marked[slot]] = dispatch->pipeline;
  timer->mark_work[slot][timer->marked[slot]] = dispatch->work;
  stamp(vulkan, slot, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 2 + 2 * timer->marked[slot]);
}

void still_vulkan_timer_after(still_vulkan *vulkan, uint32_t slot) {
  still_vulkan_timer *timer = &vulkan->timer;
  if (!timer->profiling) return;
  stamp(vulkan, slot, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 3 + 2 * timer->marked[slot]++);
}

static void add(still_vulkan_timer *timer, const char *shader, double seconds, double work) {
  uint32_t i = 0;
  while (i < timer->count && timer->times[i].shader != shader) i++;
  if (i == STILL_VULKAN_TIMED_SHADERS) return;
  if (i == timer->count) timer->times[timer->count++] = (still_vulkan_time){.shader = shader};
  timer->times[i].seconds += seconds;
  timer->times[i].work += work;
  timer->times[i].runs++;
}

double still_vulkan_timer_span(const still_vulkan *vulkan) {
  const still_vulkan_timer *timer = &vulkan->timer;
  if (timer->last <= timer->first) return 0;
  return 1e-9 * (double)vulkan->limits.timestamp_ns * (double)(timer->last - timer->first);
}

/* The ticks of queries first and first + 1. */
static bool read_pair(still_vulkan *vulkan, uint32_t slot, uint32_t first, uint64_t ticks[2]) {
  VkResult result;
  VK_RESULT(result, vulkan->call.vkGetQueryPoolResults(vulkan->device, vulkan->timer.pools[slot],
                                                       first, 2, 2 * sizeof *ticks, ticks,
                                                       sizeof *ticks, VK_QUERY_RESULT_64_BIT));
  return result == VK_SUCCESS;
}

void still_vulkan_timer_collect(still_vulkan *vulkan, uint32_t slot, double *seconds) {
  still_vulkan_timer *timer = &vulkan->timer;
  const double tick = 1e-9 * (double)vulkan->limits.timestamp_ns;
  uint64_t ticks[2];
  if (!timer->pools[slot]) return;
  if (read_pair(vulkan, slot, 0, ticks)) {
    *seconds = tick * (double)(ticks[1] - ticks[0]);
    if (ticks[0] < timer->first) timer->first = ticks[0];
    if (ticks[1] > timer->last) timer->last = ticks[1];
  }
  for (uint32_t i = 0; i < timer->marked[slot]; i++)
    if (read_pair(vulkan, slot, 2 + 2 * i, ticks))
      add(timer, timer->marks[slot][i]->name, tick * (double)(ticks[1] - ticks[0]),
          timer->mark_work[slot][i]);
}

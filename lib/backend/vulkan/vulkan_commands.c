/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_commands.h"

#include "backend/backend.h"
#include "backend/vulkan/vulkan_device.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>
#include <time.h>

/* A submission aims at half of the 100 ms that watchdogs and desktops bear well. */
static const double target_seconds = 0.05;
/* vkCmdUpdateBuffer takes this much at most; larger writes go through a staging buffer. */
enum { INLINE_BYTES = 65536 };
static const VkDeviceSize staging_bytes = 16u << 20;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

still_status still_vulkan_device_failed(still_vulkan *vulkan, VkResult result, const char *call) {
  if (result == VK_ERROR_DEVICE_LOST && !vulkan->lost) {
    vulkan->lost = true;
    still_log(STILL_LOG_ERROR, "%s: the device is lost", vulkan->name);
  }
  return still_vulkan_fail(result, call);
}

/* ---- life ------------------------------------------------------------------------------------------ */

static still_status create_slot(still_vulkan *vulkan, still_vulkan_slot *slot) {
  const VkCommandBufferAllocateInfo commands = {.sType =
                                                    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = vulkan->commands.pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = 1};
  VK_TRY(vulkan->call.vkAllocateCommandBuffers(vulkan->device, &commands, &slot->commands));
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VK_TRY(vulkan->call.vkCreateFence(vulkan->device, &fence, NULL, &slot->fence));
  const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                     STILL_VULKAN_DISPATCHES * STILL_VULKAN_BINDINGS};
  const VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                           .maxSets = STILL_VULKAN_DISPATCHES,
                                           .poolSizeCount = 1,
                                           .pPoolSizes = &size};
  VK_TRY(vulkan->call.vkCreateDescriptorPool(vulkan->device, &pool, NULL, &slot->descriptors));
  return STILL_OK;
}

still_status still_vulkan_commands_create(still_vulkan *vulkan) {
  still_vulkan_commands *commands = &vulkan->commands;
  commands->rate = 2e10; /* a guess on the slow side, corrected by the first submissions */
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = vulkan->family};
  VK_TRY(vulkan->call.vkCreateCommandPool(vulkan->device, &pool, NULL, &commands->pool));
  for (int i = 0; i < STILL_VULKAN_SLOTS; i++) STILL_TRY(create_slot(vulkan, &commands->slots[i]));
  return STILL_OK;
}

static void empty_garbage(still_vulkan *vulkan, still_vulkan_slot *slot) {
  for (size_t i = 0; i < slot->garbage_count; i++)
    still_vulkan_buffer_destroy(vulkan, &slot->garbage[i]);
  slot->garbage_count = 0;
}

void still_vulkan_commands_destroy(still_vulkan *vulkan) {
  still_vulkan_commands *commands = &vulkan->commands;
  still_vulkan_buffer_destroy(vulkan, &commands->readback);
  for (int i = 0; i < STILL_VULKAN_SLOTS; i++) {
    still_vulkan_slot *slot = &commands->slots[i];
    empty_garbage(vulkan, slot);
    still_free(slot->garbage);
    if (slot->fence) vulkan->call.vkDestroyFence(vulkan->device, slot->fence, NULL);
    if (slot->descriptors)
      vulkan->call.vkDestroyDescriptorPool(vulkan->device, slot->descriptors, NULL);
  }
  if (commands->pool) vulkan->call.vkDestroyCommandPool(vulkan->device, commands->pool, NULL);
}

/* ---- submissions ----------------------------------------------------------------------------------- */

/* Learns from a finished submission that was not much shorter than wanted; small ones are mostly waiting and say little.
 * Steps are bounded both ways: a single odd submission must not decide. */
static void learn(still_vulkan *vulkan, const still_vulkan_slot *slot, double seconds) {
  still_vulkan_commands *commands = &vulkan->commands;
  if (seconds > commands->longest_seconds) commands->longest_seconds = seconds;
  if (slot->work < 0.2 * still_vulkan_work_of(vulkan, target_seconds)) return;
  const double measured = slot->work / (seconds > 1e-6 ? seconds : 1e-6);
  const double most = commands->rate * 4, least = commands->rate / 2;
  commands->rate = measured > most ? most : measured < least ? least : measured;
}

static still_status wait_slot(still_vulkan *vulkan, uint32_t index) {
  still_vulkan_slot *slot = &vulkan->commands.slots[index];
  if (!slot->pending) return STILL_OK;
  VK_TRY_LOST(vulkan,
              vulkan->call.vkWaitForFences(vulkan->device, 1, &slot->fence, VK_TRUE, UINT64_MAX));
  slot->pending = false;
  double seconds = now() - slot->submitted_at;
  still_vulkan_timer_collect(vulkan, index, &seconds);
  learn(vulkan, slot, seconds);
  empty_garbage(vulkan, slot);
  return STILL_OK;
}

static still_status begin(still_vulkan *vulkan) {
  still_vulkan_commands *commands = &vulkan->commands;
  if (vulkan->lost) return still_vulkan_fail(VK_ERROR_DEVICE_LOST, "vkQueueSubmit(");
  if (commands->recording) return STILL_OK;
  still_vulkan_slot *slot = &commands->slots[commands->current];
  STILL_TRY(wait_slot(vulkan, commands->current));
  VK_TRY(vulkan->call.vkResetFences(vulkan->device, 1, &slot->fence));
  VK_TRY(vulkan->call.vkResetDescriptorPool(vulkan->device, slot->descriptors, 0));
  VK_TRY(vulkan->call.vkResetCommandBuffer(slot->commands,
                                           0)); /* its last recording may have failed */
  const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                         .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  VK_TRY(vulkan->call.vkBeginCommandBuffer(slot->commands, &info));
  slot->dispatches = 0;
  slot->work = 0;
  commands->recording = true;
  commands->hazards.reads = 0;
  /* Earlier submissions may still run: a buffer that nobody has is "written", so the first command waits for them. */
  commands->hazards.writes = STILL_VULKAN_TRACKED;
  still_vulkan_timer_begin(vulkan, commands->current);
  return STILL_OK;
}

static still_status submit_recording(still_vulkan *vulkan) {
  still_vulkan_commands *commands = &vulkan->commands;
  still_vulkan_slot *slot = &commands->slots[commands->current];
  still_vulkan_timer_end(vulkan, commands->current);
  VK_TRY(vulkan->call.vkEndCommandBuffer(slot->commands));
  VkSemaphore uploads;
  STILL_TRY(still_vulkan_transfer_signal(vulkan, commands->current, &uploads));
  const VkPipelineStageFlags stages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .waitSemaphoreCount = uploads != VK_NULL_HANDLE,
                             .pWaitSemaphores = &uploads,
                             .pWaitDstStageMask = &stages,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &slot->commands};
  slot->submitted_at = now();
  if (vulkan->lock_queue) vulkan->lock_queue(vulkan->queue_user);
  VkResult result;
  VK_RESULT(result, vulkan->call.vkQueueSubmit(vulkan->queue, 1, &info, slot->fence));
  if (vulkan->unlock_queue) vulkan->unlock_queue(vulkan->queue_user);
  if (result < 0) return still_vulkan_device_failed(vulkan, result, "vkQueueSubmit(");
  slot->pending = true;
  commands->submissions++;
  commands->current = (commands->current + 1) % STILL_VULKAN_SLOTS;
  return STILL_OK;
}

still_status still_vulkan_submit(still_vulkan *vulkan) {
  still_vulkan_commands *commands = &vulkan->commands;
  if (!commands->recording) return STILL_OK;
  commands->recording = false; /* also when something fails */
  const still_status status = submit_recording(vulkan);
  commands->dropped += status != STILL_OK;
  return status;
}

double still_vulkan_work_of(const still_vulkan *vulkan, double seconds) {
  return vulkan->commands.rate * seconds;
}

still_status still_vulkan_checkpoint(still_vulkan *vulkan) {
  const still_vulkan_commands *commands = &vulkan->commands;
  if (vulkan->stops && still_backend_stops(vulkan->stops))
    return still_fail(STILL_ERROR_CANCELLED, "%s: was stopped", vulkan->name);
  if (!commands->recording ||
      commands->slots[commands->current].work < still_vulkan_work_of(vulkan, target_seconds))
    return STILL_OK;
  return still_vulkan_submit(vulkan);
}

still_status still_vulkan_finish(still_vulkan *vulkan) {
  STILL_TRY(still_vulkan_submit(vulkan));
  for (uint32_t i = 0; i < STILL_VULKAN_SLOTS; i++) STILL_TRY(wait_slot(vulkan, i));
  return still_vulkan_transfer_finish(vulkan);
}

void still_vulkan_discard(still_vulkan *vulkan, still_vulkan_buffer *buffer) {
  still_vulkan_commands *commands = &vulkan->commands;
  if (!buffer->handle) return;
  /* The slot that is being recorded finishes after all that are pending. */
  still_vulkan_slot *slot = &commands->slots[commands->current];
  const size_t wanted = slot->garbage_count + 1;
  if (commands->recording && wanted > slot->garbage_capacity &&
      !STILL_REALLOC(&slot->garbage, 2 * wanted, "list of old buffers"))
    slot->garbage_capacity = 2 * wanted;
  if (commands->recording && wanted <= slot->garbage_capacity) {
    slot->garbage[slot->garbage_count++] = *buffer;
    *buffer = (still_vulkan_buffer){0};
    return;
  }
  if (!vulkan->lost && still_vulkan_finish(vulkan))
    still_log(STILL_LOG_WARNING, "%s", still_last_error());
  still_vulkan_buffer_destroy(vulkan, buffer);
}

/* ---- barriers -------------------------------------------------------------------------------------- */

static bool listed(const VkBuffer *list, uint32_t count, VkBuffer buffer) {
  for (uint32_t i = 0; i < count; i++)
    if (list[i] == buffer) return true;
  return false;
}

static bool conflicts(const still_vulkan_hazards *hazards, VkBuffer buffer, bool written) {
  if (hazards->writes == STILL_VULKAN_TRACKED || hazards->reads == STILL_VULKAN_TRACKED)
    return true;
  return listed(hazards->written, hazards->writes, buffer) ||
         (written && listed(hazards->read, hazards->reads, buffer));
}

static void remember(still_vulkan_hazards *hazards, VkBuffer buffer, bool written) {
  VkBuffer *list = written ? hazards->written : hazards->read;
  uint32_t *count = written ? &hazards->writes : &hazards->reads;
  if (*count < STILL_VULKAN_TRACKED && !listed(list, *count, buffer)) list[(*count)++] = buffer;
}

static void barrier(still_vulkan *vulkan) {
  still_vulkan_commands *commands = &vulkan->commands;
  const VkPipelineStageFlags stages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkMemoryBarrier all = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                       VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
  vulkan->call.vkCmdPipelineBarrier(commands->slots[commands->current].commands, stages, stages, 0,
                                    1, &all, 0, NULL, 0, NULL);
  commands->hazards.reads = commands->hazards.writes = 0;
}

/* A barrier if one of the buffers needs it; then they count as touched. */
static void order(still_vulkan *vulkan, still_vulkan_buffer *const *buffers, unsigned count,
                  unsigned writes) {
  still_vulkan_hazards *hazards = &vulkan->commands.hazards;
  bool needed = false;
  for (unsigned i = 0; i < count; i++)
    needed |= buffers[i] && conflicts(hazards, buffers[i]->handle, writes >> i & 1);
  if (needed) barrier(vulkan);
  for (unsigned i = 0; i < count; i++)
    if (buffers[i]) {
      remember(hazards, buffers[i]->handle, writes >> i & 1);
      buffers[i]->last_use = vulkan->commands.submissions + 1;
      if (writes >> i & 1) buffers[i]->changed = ++vulkan->commands.writes;
    }
}

/* ---- recording ------------------------------------------------------------------------------------- */

static still_status bind(still_vulkan *vulkan, const still_vulkan_dispatch *dispatch,
                         VkDescriptorSet *set) {
  still_vulkan_slot *slot = &vulkan->commands.slots[vulkan->commands.current];
  const VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                            .descriptorPool = slot->descriptors,
                                            .descriptorSetCount = 1,
                                            .pSetLayouts = &vulkan->pipelines.set_layout};
  VK_TRY(vulkan->call.vkAllocateDescriptorSets(vulkan->device, &info, set));
  VkDescriptorBufferInfo buffers[STILL_VULKAN_BINDINGS];
  VkWriteDescriptorSet writes[STILL_VULKAN_BINDINGS];
  uint32_t count = 0;
  for (uint32_t i = 0; i < STILL_VULKAN_BINDINGS; i++) {
    if (!dispatch->buffers[i]) continue;
    buffers[count] = (VkDescriptorBufferInfo){
        dispatch->buffers[i]->handle, dispatch->buffers[i]->binding, dispatch->buffers[i]->bytes};
    writes[count] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                           .dstSet = *set,
                                           .dstBinding = i,
                                           .descriptorCount = 1,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .pBufferInfo = &buffers[count]};
    count++;
  }
  vulkan->call.vkUpdateDescriptorSets(vulkan->device, count, writes, 0, NULL);
  return STILL_OK;
}

still_status still_vulkan_run(still_vulkan *vulkan, const still_vulkan_dispatch *dispatch) {
  still_vulkan_commands *commands = &vulkan->commands;
  if (commands->recording &&
      commands->slots[commands->current].dispatches == STILL_VULKAN_DISPATCHES)
    STILL_TRY(still_vulkan_submit(vulkan));
  STILL_TRY(begin(vulkan));
  still_vulkan_slot *slot = &commands->slots[commands->current];
  VkDescriptorSet set;
  STILL_TRY(bind(vulkan, dispatch, &set));
  if (vulkan->timer.profiling) barrier(vulkan); /* one shader at a time */
  order(vulkan, dispatch->buffers, STILL_VULKAN_BINDINGS, dispatch->writes);
  vulkan->call.vkCmdBindPipeline(slot->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                 dispatch->pipeline->handle);
  vulkan->call.vkCmdBindDescriptorSets(slot->commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                       vulkan->pipelines.layout, 0, 1, &set, 0, NULL);
  vulkan->call.vkCmdPushConstants(slot->commands, vulkan->pipelines.layout,
                                  VK_SHADER_STAGE_COMPUTE_BIT, 0, dispatch->push_bytes,
                                  dispatch->push);
  still_vulkan_timer_before(vulkan, commands->current, dispatch);
  vulkan->call.vkCmdDispatch(slot->commands, dispatch->groups[0], dispatch->groups[1],
                             dispatch->groups[2]);
  still_vulkan_timer_after(vulkan, commands->current);
  slot->dispatches++;
  slot->work += dispatch->gain > 0 ? dispatch->work / dispatch->gain : dispatch->work;
  return STILL_OK;
}

still_status still_vulkan_copy(still_vulkan *vulkan, still_vulkan_buffer *to,
                               VkDeviceSize to_offset, still_vulkan_buffer *from,
                               VkDeviceSize from_offset, VkDeviceSize bytes) {
  if (!bytes) return STILL_OK;
  STILL_TRY(begin(vulkan));
  still_vulkan_buffer *buffers[] = {to, from};
  order(vulkan, buffers, 2, 1);
  const VkBufferCopy region = {from_offset, to_offset, bytes};
  vulkan->call.vkCmdCopyBuffer(vulkan->commands.slots[vulkan->commands.current].commands,
                               from->handle, to->handle, 1, &region);
  return STILL_OK;
}

still_status still_vulkan_zero(still_vulkan *vulkan, still_vulkan_buffer *buffer) {
  STILL_TRY(begin(vulkan));
  order(vulkan, &buffer, 1, 1);
  vulkan->call.vkCmdFillBuffer(vulkan->commands.slots[vulkan->commands.current].commands,
                               buffer->handle, 0, VK_WHOLE_SIZE, 0);
  return STILL_OK;
}

static still_status write_staged(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                 VkDeviceSize offset, const char *data, VkDeviceSize bytes) {
  for (VkDeviceSize done = 0; done < bytes; done += staging_bytes) {
    const VkDeviceSize piece = bytes - done < staging_bytes ? bytes - done : staging_bytes;
    still_vulkan_buffer staging;
    STILL_TRY(still_vulkan_buffer_create(vulkan, &staging, piece, STILL_VULKAN_UPLOAD));
    memcpy(staging.mapped, data + done, piece);
    const still_status status =
        still_vulkan_copy(vulkan, buffer, offset + done, &staging, 0, piece);
    still_vulkan_discard(vulkan, &staging);
    STILL_TRY(status);
    if (bytes > staging_bytes)
      STILL_TRY(still_vulkan_submit(vulkan)); /* bounds the staging memory */
  }
  return STILL_OK;
}

still_status still_vulkan_write(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                VkDeviceSize offset, const void *data, VkDeviceSize bytes) {
  if (!bytes) return STILL_OK;
  buffer->changed = ++vulkan->commands.writes;
  if (buffer->mapped && !buffer->last_use) { /* nothing on the device can be using it yet */
    memcpy((char *)buffer->mapped + offset, data, bytes);
    return STILL_OK;
  }
  if (bytes > INLINE_BYTES && vulkan->transfer.queue && !buffer->last_use)
    return still_vulkan_transfer_write(vulkan, buffer, offset, data, bytes);
  if (bytes > INLINE_BYTES || bytes % 4 || offset % 4)
    return write_staged(vulkan, buffer, offset, data, bytes);
  STILL_TRY(begin(vulkan));
  order(vulkan, &buffer, 1, 1);
  vulkan->call.vkCmdUpdateBuffer(vulkan->commands.slots[vulkan->commands.current].commands,
                                 buffer->handle, offset, bytes, data);
  return STILL_OK;
}

/* Makes what the device wrote visible to the CPU when the fence signals. */
static void host_barrier(still_vulkan *vulkan) {
  const VkMemoryBarrier host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                .srcAccessMask =
                                    VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
  vulkan->call.vkCmdPipelineBarrier(vulkan->commands.slots[vulkan->commands.current].commands,
                                    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
                                        VK_PIPELINE_STAGE_TRANSFER_BIT,
                                    VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &host, 0, NULL, 0, NULL);
}

/* Room in `readback` for these many bytes. */
static still_status reserve_readback(still_vulkan *vulkan, VkDeviceSize bytes) {
  still_vulkan_buffer *readback = &vulkan->commands.readback;
  if (readback->bytes >= bytes) return STILL_OK;
  still_vulkan_discard(vulkan, readback);
  return still_vulkan_buffer_create(vulkan, readback, bytes, STILL_VULKAN_READBACK);
}

static still_status take_readback(still_vulkan *vulkan, void *data, VkDeviceSize bytes) {
  host_barrier(vulkan);
  STILL_TRY(still_vulkan_finish(vulkan));
  memcpy(data, vulkan->commands.readback.mapped, bytes);
  return STILL_OK;
}

static still_status read_piece(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                               VkDeviceSize offset, void *data, VkDeviceSize bytes) {
  STILL_TRY(reserve_readback(vulkan, bytes));
  STILL_TRY(still_vulkan_copy(vulkan, &vulkan->commands.readback, 0, buffer, offset, bytes));
  return take_readback(vulkan, data, bytes);
}

still_status still_vulkan_read_all(still_vulkan *vulkan, still_vulkan_buffer *const *buffers,
                                   int count, void *data) {
  VkDeviceSize bytes = 0, at = 0;
  for (int i = 0; i < count; i++) bytes += buffers[i]->bytes;
  const bool once = count && bytes <= staging_bytes && !buffers[0]->mapped;
  if (once) STILL_TRY(reserve_readback(vulkan, bytes));
  for (int i = 0; i < count; at += buffers[i++]->bytes)
    STILL_TRY(once
                  ? still_vulkan_copy(vulkan, &vulkan->commands.readback, at, buffers[i], 0,
                                      buffers[i]->bytes)
                  : still_vulkan_read(vulkan, buffers[i], 0, (char *)data + at, buffers[i]->bytes));
  return once ? take_readback(vulkan, data, bytes) : STILL_OK;
}

still_status still_vulkan_read(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                               VkDeviceSize offset, void *data, VkDeviceSize bytes) {
  if (buffer->mapped) {
    STILL_TRY(begin(vulkan));
    host_barrier(vulkan);
    STILL_TRY(still_vulkan_finish(vulkan));
    memcpy(data, (char *)buffer->mapped + offset, bytes);
    return STILL_OK;
  }
  for (VkDeviceSize done = 0; done < bytes; done += staging_bytes) {
    const VkDeviceSize piece = bytes - done < staging_bytes ? bytes - done : staging_bytes;
    STILL_TRY(read_piece(vulkan, buffer, offset + done, (char *)data + done, piece));
  }
  return STILL_OK;
}

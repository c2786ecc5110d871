/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_transfer.h"

#include "backend/vulkan/vulkan_device.h"

#include <string.h>

static const VkDeviceSize staging_bytes = 16u << 20;

static still_status create_slot(still_vulkan *vulkan, uint32_t index) {
  still_vulkan_transfer *transfer = &vulkan->transfer;
  const VkCommandBufferAllocateInfo commands = {.sType =
                                                    VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                .commandPool = transfer->pool,
                                                .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                .commandBufferCount = 1};
  VK_TRY(vulkan->call.vkAllocateCommandBuffers(vulkan->device, &commands,
                                               &transfer->slots[index].commands));
  const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VK_TRY(vulkan->call.vkCreateFence(vulkan->device, &fence, NULL, &transfer->slots[index].fence));
  return STILL_OK;
}

still_status still_vulkan_transfer_create(still_vulkan *vulkan) {
  still_vulkan_transfer *transfer = &vulkan->transfer;
  if (!transfer->queue) return STILL_OK;
  const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                        .queueFamilyIndex = transfer->family};
  VK_TRY(vulkan->call.vkCreateCommandPool(vulkan->device, &pool, NULL, &transfer->pool));
  for (uint32_t i = 0; i < STILL_VULKAN_TRANSFERS; i++) STILL_TRY(create_slot(vulkan, i));
  const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO};
  for (int i = 0; i < STILL_VULKAN_SLOTS; i++)
    VK_TRY(vulkan->call.vkCreateSemaphore(vulkan->device, &semaphore, NULL, &transfer->done[i]));
  return STILL_OK;
}

void still_vulkan_transfer_destroy(still_vulkan *vulkan) {
  still_vulkan_transfer *transfer = &vulkan->transfer;
  for (int i = 0; i < STILL_VULKAN_TRANSFERS; i++) {
    still_vulkan_buffer_destroy(vulkan, &transfer->slots[i].staging);
    if (transfer->slots[i].fence)
      vulkan->call.vkDestroyFence(vulkan->device, transfer->slots[i].fence, NULL);
  }
  for (int i = 0; i < STILL_VULKAN_SLOTS; i++)
    if (transfer->done[i]) vulkan->call.vkDestroySemaphore(vulkan->device, transfer->done[i], NULL);
  if (transfer->pool) vulkan->call.vkDestroyCommandPool(vulkan->device, transfer->pool, NULL);
}

static still_status wait_slot(still_vulkan *vulkan, uint32_t index) {
  still_vulkan_transfer *transfer = &vulkan->transfer;
  if (!transfer->slots[index].pending) return STILL_OK;
  VK_TRY_LOST(vulkan, vulkan->call.vkWaitForFences(vulkan->device, 1, &transfer->slots[index].fence,
                                                   VK_TRUE, UINT64_MAX));
  transfer->slots[index].pending = false;
  return STILL_OK;
}

static still_status record(still_vulkan *vulkan, VkCommandBuffer commands,
                           const still_vulkan_buffer *to, const still_vulkan_buffer *staging,
                           VkDeviceSize offset, VkDeviceSize bytes) {
  const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                         .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  const VkBufferCopy region = {0, offset, bytes};
  VK_TRY(vulkan->call.vkResetCommandBuffer(commands, 0));
  VK_TRY(vulkan->call.vkBeginCommandBuffer(commands, &info));
  vulkan->call.vkCmdCopyBuffer(commands, staging->handle, to->handle, 1, &region);
  VK_TRY(vulkan->call.vkEndCommandBuffer(commands));
  return STILL_OK;
}

static still_status copy_piece(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                               VkDeviceSize offset, const char *data, VkDeviceSize bytes) {
  still_vulkan_transfer *transfer = &vulkan->transfer;
  const uint32_t index = transfer->current;
  still_vulkan_buffer *staging = &transfer->slots[index].staging;
  if (vulkan->lost) return still_vulkan_fail(VK_ERROR_DEVICE_LOST, "vkQueueSubmit(");
  STILL_TRY(wait_slot(vulkan, index));
  if (staging->bytes < bytes) {
    still_vulkan_buffer_destroy(vulkan, staging);
    STILL_TRY(still_vulkan_buffer_create(vulkan, staging, bytes, STILL_VULKAN_UPLOAD));
  }
  memcpy(staging->mapped, data, bytes);
  VkCommandBuffer commands = transfer->slots[index].commands;
  STILL_TRY(record(vulkan, commands, buffer, staging, offset, bytes));
  VK_TRY(vulkan->call.vkResetFences(vulkan->device, 1, &transfer->slots[index].fence));
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .commandBufferCount = 1,
                             .pCommandBuffers = &commands};
  VK_TRY_LOST(vulkan,
              vulkan->call.vkQueueSubmit(transfer->queue, 1, &info, transfer->slots[index].fence));
  transfer->slots[index].pending = transfer->unseen = true;
  transfer->current = (index + 1) % STILL_VULKAN_TRANSFERS;
  return STILL_OK;
}

still_status still_vulkan_transfer_write(still_vulkan *vulkan, still_vulkan_buffer *buffer,
                                         VkDeviceSize offset, const char *data,
                                         VkDeviceSize bytes) {
  for (VkDeviceSize done = 0; done < bytes; done += staging_bytes) {
    const VkDeviceSize left = bytes - done;
    STILL_TRY(copy_piece(vulkan, buffer, offset + done, data + done,
                         left < staging_bytes ? left : staging_bytes));
  }
  return STILL_OK;
}

still_status still_vulkan_transfer_signal(still_vulkan *vulkan, uint32_t slot,
                                          VkSemaphore *semaphore) {
  still_vulkan_transfer *transfer = &vulkan->transfer;
  *semaphore = VK_NULL_HANDLE;
  if (!transfer->unseen) return STILL_OK;
  const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                             .signalSemaphoreCount = 1,
                             .pSignalSemaphores = &transfer->done[slot]};
  VK_TRY_LOST(vulkan, vulkan->call.vkQueueSubmit(transfer->queue, 1, &info, VK_NULL_HANDLE));
  transfer->unseen = false;
  *semaphore = transfer->done[slot];
  return STILL_OK;
}

still_status still_vulkan_transfer_finish(still_vulkan *vulkan) {
  for (uint32_t i = 0; i < STILL_VULKAN_TRANSFERS; i++) STILL_TRY(wait_slot(vulkan, i));
  return STILL_OK;
}

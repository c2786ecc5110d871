/* SPDX-License-Identifier: MIT */
#include "backend/vulkan/vulkan_pipelines.h"

#include "backend/vulkan/vulkan_device.h"
#include "base/memory.h"
#include "shaders/shader_code.h"
#include "shaders/shader_interface.h"

#include <string.h>

static const struct {
  const char *name;
  const uint32_t *code;
  size_t bytes;
} shaders[] = {
#define SHADER(name) {#name, shader_##name, sizeof shader_##name},
#include "shaders/shader_list.h"
#undef SHADER
};

static still_status create_layouts(still_vulkan *vulkan) {
  VkDescriptorSetLayoutBinding bindings[STILL_VULKAN_BINDINGS];
  for (uint32_t i = 0; i < STILL_VULKAN_BINDINGS; i++)
    bindings[i] =
        (VkDescriptorSetLayoutBinding){.binding = i,
                                       .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                       .descriptorCount = 1,
                                       .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  const VkDescriptorSetLayoutCreateInfo set = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
      .bindingCount = STILL_VULKAN_BINDINGS,
      .pBindings = bindings};
  still_vulkan_pipelines *pipelines = &vulkan->pipelines;
  VK_TRY(
      vulkan->call.vkCreateDescriptorSetLayout(vulkan->device, &set, NULL, &pipelines->set_layout));
  const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, STILL_VULKAN_PUSH_BYTES};
  const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                             .setLayoutCount = 1,
                                             .pSetLayouts = &pipelines->set_layout,
                                             .pushConstantRangeCount = 1,
                                             .pPushConstantRanges = &push};
  VK_TRY(vulkan->call.vkCreatePipelineLayout(vulkan->device, &layout, NULL, &pipelines->layout));
  return STILL_OK;
}

still_status still_vulkan_pipelines_create(still_vulkan *vulkan) {
  if (vulkan->properties.limits.maxPerStageDescriptorStorageBuffers < STILL_VULKAN_BINDINGS)
    return still_fail(STILL_ERROR_DEVICE, "%s: binds %u storage buffers, %d are needed",
                      vulkan->name, vulkan->properties.limits.maxPerStageDescriptorStorageBuffers,
                      STILL_VULKAN_BINDINGS);
  if (vulkan->properties.limits.maxComputeWorkGroupInvocations < STILL_WIDE_GROUP)
    return still_fail(STILL_ERROR_DEVICE, "%s: workgroups of %u invocations, %d are needed",
                      vulkan->name, vulkan->properties.limits.maxComputeWorkGroupInvocations,
                      STILL_WIDE_GROUP);
  STILL_TRY(create_layouts(vulkan));
  void *data;
  VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  still_vulkan_cache_load(vulkan, &data, &info.initialDataSize);
  info.pInitialData = data;
  VkResult result;
  VK_RESULT(result, vulkan->call.vkCreatePipelineCache(vulkan->device, &info, NULL,
                                                       &vulkan->pipelines.cache));
  vulkan->pipelines.cache_bytes = info.initialDataSize;
  still_free(data);
  return result < 0 ? still_vulkan_fail(result, "vkCreatePipelineCache(") : STILL_OK;
}

void still_vulkan_pipelines_destroy(still_vulkan *vulkan) {
  still_vulkan_pipelines *pipelines = &vulkan->pipelines;
  if (pipelines->cache && !vulkan->lost) still_vulkan_cache_save(vulkan);
  for (int i = 0; i < STILL_SHADERS; i++)
    while (pipelines->made[i]) {
      still_vulkan_pipeline *pipeline = pipelines->made[i];
      pipelines->made[i] = pipeline->next;
      vulkan->call.vkDestroyPipeline(vulkan->device, pipeline->handle, NULL);
      still_free(pipeline);
    }
  if (pipelines->cache) vulkan->call.vkDestroyPipelineCache(vulkan->device, pipelines->cache, NULL);
  if (pipelines->layout)
    vulkan->call.vkDestroyPipelineLayout(vulkan->device, pipelines->layout, NULL);
  if (pipelines->set_layout)
    vulkan->call.vkDestroyDescriptorSetLayout(vulkan->device, pipelines->set_layout, NULL);
}

static struct {
  const uint32_t *code;
  size_t bytes;
} pretended[STILL_SHADERS];

void still_vulkan_pretend_code(still_shader shader, const uint32_t *code, size_t bytes) {
  pretended[shader].code = code;
  pretended[shader].bytes = bytes;
}

static still_status compile(still_vulkan *vulkan, still_shader shader,
                            still_vulkan_pipeline *pipeline) {
  const bool pretends = pretended[shader].code != NULL;
  const VkShaderModuleCreateInfo code = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
      .codeSize = pretends ? pretended[shader].bytes : shaders[shader].bytes,
      .pCode = pretends ? pretended[shader].code : shaders[shader].code};
  VkShaderModule module;
  VK_TRY(vulkan->call.vkCreateShaderModule(vulkan->device, &code, NULL, &module));
  VkSpecializationMapEntry entries[STILL_VULKAN_CONSTANTS];
  for (uint32_t i = 0; i < STILL_VULKAN_CONSTANTS; i++)
    entries[i] = (VkSpecializationMapEntry){i, 4 * i, 4};
  uint32_t values[STILL_VULKAN_CONSTANTS];
  memcpy(values, pipeline->constants, sizeof values);
  const bool cpu = vulkan->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  values[STILL_VULKAN_CONSTANTS - 1] = cpu ? 1 : 16; /* shaders/unroll.glsl */
  const VkSpecializationInfo constants = {STILL_VULKAN_CONSTANTS, entries, sizeof values, values};
  const VkPipelineRobustnessCreateInfoEXT unchecked = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT,
      .storageBuffers = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT,
      .uniformBuffers = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT,
      .vertexInputs = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT,
      .images = VK_PIPELINE_ROBUSTNESS_IMAGE_BEHAVIOR_DISABLED_EXT};
  const VkComputePipelineCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .pNext = vulkan->features & STILL_VULKAN_UNCHECKED ? &unchecked : NULL,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
                .pSpecializationInfo = &constants},
      .layout = vulkan->pipelines.layout};
  VkResult result;
  VK_RESULT(result, vulkan->call.vkCreateComputePipelines(vulkan->device, vulkan->pipelines.cache,
                                                          1, &info, NULL, &pipeline->handle));
  vulkan->call.vkDestroyShaderModule(vulkan->device, module, NULL);
  return result < 0 ? still_fail_in(still_vulkan_fail(result, "vkCreateComputePipelines("), "%s",
                                    shaders[shader].name)
                    : STILL_OK;
}

still_status still_vulkan_pipeline_get(still_vulkan *vulkan, still_shader shader,
                                       const uint32_t *constants,
                                       const still_vulkan_pipeline **out) {
  const size_t bytes = STILL_VULKAN_CONSTANTS * sizeof constants[0];
  for (still_vulkan_pipeline *made = vulkan->pipelines.made[shader]; made; made = made->next)
    if (!memcmp(made->constants, constants, bytes)) {
      *out = made;
      return STILL_OK;
    }
  still_vulkan_pipeline *pipeline;
  STILL_TRY(STILL_ALLOC(&pipeline, 1, "a Vulkan pipeline"));
  memcpy(pipeline->constants, constants, bytes);
  pipeline->name = shaders[shader].name;
  const still_status status = compile(vulkan, shader, pipeline);
  if (status) {
    still_free(pipeline);
    return status;
  }
  pipeline->next = vulkan->pipelines.made[shader];
  vulkan->pipelines.made[shader] = pipeline;
  *out = pipeline;
  return STILL_OK;
}

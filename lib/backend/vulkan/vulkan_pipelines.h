/* SPDX-License-Identifier: MIT
 * Shaders with their specialisation constants, made when first wanted; the driver's results are kept on disk. */
#ifndef STILL_VULKAN_PIPELINES_H
#define STILL_VULKAN_PIPELINES_H

#include "backend/vulkan/vulkan_result.h"

typedef struct still_vulkan still_vulkan;

/* One name for each line of the variant table in shaders/meson.build. */
typedef enum still_shader {
#define SHADER(name) STILL_SHADER_##name,
#include "shaders/shader_list.h"
#undef SHADER
  STILL_SHADERS
} still_shader;

enum { STILL_VULKAN_CONSTANTS = 6, STILL_VULKAN_PUSH_BYTES = 128 };

typedef struct still_vulkan_pipeline still_vulkan_pipeline;
struct still_vulkan_pipeline {
  VkPipeline handle;
  const char *name; /* "softmax_branch_f32" */
  uint32_t constants[STILL_VULKAN_CONSTANTS];
  still_vulkan_pipeline *next;
};

typedef struct still_vulkan_pipelines {
  VkDescriptorSetLayout
      set_layout; /* STILL_VULKAN_BINDINGS storage buffers, the same for every shader */
  VkPipelineLayout layout;
  VkPipelineCache cache;
  size_t cache_bytes; /* as loaded: grown means worth saving */
  still_vulkan_pipeline *made[STILL_SHADERS];
} still_vulkan_pipelines;

still_status still_vulkan_pipelines_create(still_vulkan *vulkan);
void still_vulkan_pipelines_destroy(still_vulkan *vulkan);

/* constants: values of specialisation constants 0 .. STILL_VULKAN_CONSTANTS-1, unused ones 0, and the last (unroll.glsl), which
 * follows from the device. */
still_status still_vulkan_pipeline_get(still_vulkan *vulkan, still_shader shader,
                                       const uint32_t *constants,
                                       const still_vulkan_pipeline **pipeline);

/* For tests: other code than the table's in pipelines made from now on; NULL: the table's again. */
void still_vulkan_pretend_code(still_shader shader, const uint32_t *code, size_t bytes);

/* The cache file of this device and driver: $STILL_CACHE_DIR, else $XDG_CACHE_HOME/still, else ~/.cache/still; off with
 * STILL_VULKAN_CACHE=off. A file that is missing, damaged or of another driver is ignored. */
void still_vulkan_cache_load(still_vulkan *vulkan, void **data, size_t *bytes);
void still_vulkan_cache_save(still_vulkan *vulkan);

#endif

// SPDX-License-Identifier: MIT
// Steps of a product's inner loop that are unrolled, at most: 1 for drivers that run on the CPU, which compile long shaders for
// minutes (vulkan_pipelines.c).
layout(constant_id = 5) const uint UNROLL = 16;

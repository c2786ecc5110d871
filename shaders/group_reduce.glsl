// SPDX-License-Identifier: MIT
// Maximum and sum over the invocations of a workgroup; every invocation gets the result.
shared float group_values[STILL_GROUP];

float group_reduce(uint tid, float x, bool maximum) {
  group_values[tid] = x;
  barrier();
  for (uint width = STILL_GROUP / 2; width > 0; width /= 2) {
    if (tid < width) {
      float a = group_values[tid], b = group_values[tid + width];
      group_values[tid] = maximum ? max(a, b) : a + b;
    }
    barrier();
  }
  float result = group_values[0];
  barrier();
  return result;
}
float group_max(uint tid, float x) { return group_reduce(tid, x, true); }
float group_sum(uint tid, float x) { return group_reduce(tid, x, false); }

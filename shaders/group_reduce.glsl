// SPDX-License-Identifier: MIT
// Maximum and sum over the invocations of a workgroup; every invocation gets the result. With SUBGROUP the subgroups reduce
// first, whatever their size.
shared float group_values[GROUP];

#ifdef SUBGROUP
float group_reduce(uint tid, float x, bool maximum) {
  x = maximum ? subgroupMax(x) : subgroupAdd(x);
  if (subgroupElect()) group_values[gl_SubgroupID] = x;
  barrier();
  float result = group_values[0];
  for (uint i = 1; i < gl_NumSubgroups; i++)
    result = maximum ? max(result, group_values[i]) : result + group_values[i];
  barrier();
  return result;
}
#else
float group_reduce(uint tid, float x, bool maximum) {
  group_values[tid] = x;
  barrier();
  for (uint width = GROUP / 2; width > 0; width /= 2) {
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
#endif
float group_max(uint tid, float x) { return group_reduce(tid, x, true); }
float group_sum(uint tid, float x) { return group_reduce(tid, x, false); }

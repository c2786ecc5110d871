// SPDX-License-Identifier: MIT
// Cooperative matrices by shared memory, in the order of the registers that tile_rows.glsl describes: what the *_coopmat shaders
// do can be tested on devices without them. Every subgroup of a workgroup has to take part in each operation.
#extension GL_KHR_memory_scope_semantics : require

#define MATRIX_A float16_t[8]
#define MATRIX_B float16_t[8]
#define MATRIX_SUM float[8]
#define LANE (gl_LocalInvocationID.x % 32)
#define ONE gl_NumWorkGroups.z  // at the ends of loops
#define SUBGROUP (gl_LocalInvocationID.x / 32)

#ifdef DIM
const uint DIM8 = DIM / 8;
const uint DIM_TILES = DIM / 16;
#endif

uint tile_row(uint e) { return LANE / 4 + 8 * (e / 4); }
uint tile_column(uint e) { return 2 * (LANE % 4) + e % 2 + 8 * (e / 2 % 2); }

float[8] filled(float x) { return float[8](x, x, x, x, x, x, x, x); }

shared float first[GROUP / 32][256], second[GROUP / 32][256];  // second: transposed, as MATRIX_B lies in registers

#define coopMatMulAdd product_of_tiles
#define TERM(k) first[SUBGROUP][left + k] * second[SUBGROUP][right + k]
float[8] product_of_tiles(float16_t[8] a, float16_t[8] b, float[8] sum) {
  for (uint e = 0; e < 8 * ONE; e++) {
    first[SUBGROUP][tile_row(e) * 16 + tile_column(e)] = float(a[e]);
    second[SUBGROUP][tile_row(e) * 16 + tile_column(e)] = float(b[e]);
  }
  barrier();
  for (uint e = 0; e < 8 * ONE; e++) {
    uint left = tile_row(e) * 16, right = tile_column(e) * 16;
    // no loop: llvmpipe stops an invocation after 65535 iterations of all of its loops
    sum[e] += TERM(0) + TERM(1) + TERM(2) + TERM(3) + TERM(4) + TERM(5) + TERM(6) + TERM(7) + TERM(8) + TERM(9) + TERM(10) +
              TERM(11) + TERM(12) + TERM(13) + TERM(14) + TERM(15);
  }
  barrier();
  return sum;
}

// The largest of the workgroup, whose subgroups have to take the same number of steps here.
shared uint largest;
uint most_of_group(uint x) {
  if (gl_LocalInvocationID.x == 0) largest = 0;
  barrier();
  atomicMax(largest, x);
  barrier();
  uint y = largest;
  barrier();
  return y;
}

#define subgroupBarrier barrier
#define subgroupMemoryBarrierShared memoryBarrierShared
shared float exchanged[GROUP];
#define subgroupShuffle exchange
#define subgroupShuffleXor exchange_xor
float exchange(float x, uint lane) {
  exchanged[gl_LocalInvocationID.x] = x;
  barrier();
  float y = exchanged[32 * SUBGROUP + lane];
  barrier();
  return y;
}
float exchange_xor(float x, uint mask) { return exchange(x, LANE ^ mask); }

// SPDX-License-Identifier: MIT
// Rows of 16 x 16 tiles whose elements lie in the registers of a subgroup. Which element an invocation holds is the device's
// affair: find_places() asks. That element e of a sum and of a MATRIX_A are the same place of the tile is assumed, so that
// sums become factors without a detour; a device that does otherwise fails the self-check. Needs SUBGROUPS.
const uint ELEMENTS = 8;   // of a tile in an invocation
const uint PLACE_ROW = 20;  // 16 columns, the row's result, padding
shared float places[SUBGROUPS * 16 * PLACE_ROW];
uint place[ELEMENTS];  // row * PLACE_ROW + column of each element
uint places0;          // where this subgroup's part begins

void subgroup_sync() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

void find_places() {
  places0 = gl_SubgroupID * 16 * PLACE_ROW;
  for (uint i = gl_SubgroupInvocationID; i < 16 * PLACE_ROW; i += 32) places[places0 + i] = float(i);
  subgroup_sync();
  MATRIX_SUM index;
  coopMatLoad(index, places, places0, PLACE_ROW, ROW_MAJOR);
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) place[e] = uint(index[e]);
  subgroup_sync();
}
uint row_of(uint e) { return place[e] / PLACE_ROW; }
uint column_of(uint e) { return place[e] % PLACE_ROW; }

void put_parts(float x[ELEMENTS]) {
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) places[places0 + place[e]] = x[e];
  subgroup_sync();
}
// The row's result, put into column 16 by its invocation, for every element.
void get_rows(out float x[ELEMENTS]) {
  subgroup_sync();
  [[unroll]] for (uint e = 0; e < ELEMENTS; e++) x[e] = places[places0 + row_of(e) * PLACE_ROW + 16];
  subgroup_sync();
}
void row_sum(inout float x[ELEMENTS]) {
  put_parts(x);
  uint at = places0 + gl_SubgroupInvocationID * PLACE_ROW;
  if (gl_SubgroupInvocationID < 16) {
    float sum = 0;
    [[unroll]] for (uint c = 0; c < 16; c++) sum += places[at + c];
    places[at + 16] = sum;
  }
  get_rows(x);
}
void row_max(inout float x[ELEMENTS]) {
  put_parts(x);
  uint at = places0 + gl_SubgroupInvocationID * PLACE_ROW;
  if (gl_SubgroupInvocationID < 16) {
    float most = places[at];
    [[unroll]] for (uint c = 1; c < 16; c++) most = max(most, places[at + c]);
    places[at + 16] = most;
  }
  get_rows(x);
}

/* SPDX-License-Identifier: MIT
 *
 * What C and the shaders agree on: push constants, tile sizes, numbers of metrics. Included by both; members are 4 bytes
 * each, so the layouts are the same. Binding numbers are the order of the buffers at the top of each shader.
 */
#ifndef STILL_SHADER_INTERFACE_H
#define STILL_SHADER_INTERFACE_H

#ifdef STILL_SHADER
#define STILL_PUSH(name) struct name##_push
#define STILL_UINT uint
#else
#include <stdint.h>
#define STILL_PUSH(name)                                                                           \
  typedef struct name##_push name##_push;                                                          \
  struct name##_push
#define STILL_UINT uint32_t
#endif

/* Invocations of a workgroup, and of the softmax branch's; rows of a tile of queries and of a tile of keys. */
#define STILL_GROUP 128
#define STILL_WIDE_GROUP 256
#define STILL_TILE 64
/* Decode: logits that one workgroup holds at a time; workgroups that share the columns of a head's linear state. */
#define STILL_DECODE_ROWS 256
#define STILL_DECODE_LINEAR 4
/* Rows of activations that one run of matvec multiplies at most. */
#define STILL_MATVEC_ROWS 4

/* matmul_coopmat: invocations, rows of activations and of W of a workgroup, columns of a step. */
#define STILL_MATMUL_GROUP 128
#define STILL_MATMUL_TILE_N 128
#define STILL_MATMUL_TILE_W 128
#define STILL_MATMUL_SLICE 32

/* f16 copies of features are multiplied by this; sums of any number of them are divided by that number, so that values below
 * 2^11 stay finite. */
#define STILL_FEATURE_SCALE 16.0f

/* One block of new tokens through an attention layer. Positions count from the start of the sequence. */
STILL_PUSH(attention) {
  STILL_UINT heads, kv_heads,
      route_heads;         /* route_heads: heads, or kv_heads when a group shares its choice */
  STILL_UINT start, count; /* first new position, how many */
  STILL_UINT row0;         /* row of q, k, v, gate, out that holds `start` */
  STILL_UINT base, rows,
      work_row0; /* work space: position of row work_row0 (mostly 0), rows of each head */
  STILL_UINT chunk, keep, cap;         /* C, lambda, most kept tokens */
  STILL_UINT kept_rows;                /* rows of each head in the kept cache */
  STILL_UINT route_first, route_count; /* chunks that are routed in this block */
  STILL_UINT lower, sinks;             /* see softmax_branch.comp */
  STILL_UINT metric, seed_low, seed_high;
  STILL_UINT flags;
  STILL_UINT segments;               /* of the routed chunks: linear_branch_coopmat.comp */
  STILL_UINT kept_parts, near_parts; /* decode: how many workgroups share a head's keys */
  float scale;                       /* 1 / sqrt(D) */
};
#define STILL_FLAG_LINEAR 1u /* there is a linear branch */
#define STILL_FLAG_GATE 2u   /* there is a gate */
#define STILL_FLAG_NORM 4u   /* norm-preserved feature map, else Hedgehog */

/* Values of attention_push.lower: how far back the near keys of a query at position t reach. */
#define STILL_LOWER_CHUNK 0u  /* the chunk before t's: STILL */
#define STILL_LOWER_ALL 1u    /* the beginning: full attention */
#define STILL_LOWER_WINDOW 2u /* the last `chunk` tokens, and the first `sinks` */

/* The dense part: n rows through something of `width` columns. */
STILL_PUSH(dense) {
  STILL_UINT n, rows, columns; /* matmul: out (n x rows) = in (n x columns) W^T */
  STILL_UINT row0;             /* first row of W in this part, for weights in several buffers */
  STILL_UINT all_rows;         /* rows of W in all parts: the width of out */
  STILL_UINT first;            /* copy_rows; matmul: first row of in and out */
  STILL_UINT accumulate;
  STILL_UINT heads, dim, half_dim; /* rotary */
  float factor;                    /* rms_norm: eps; scale */
};

/* What elementwise.comp does. */
#define STILL_OP_ADD 0
#define STILL_OP_SCALE 1
#define STILL_OP_SWIGLU 2
#define STILL_OP_SIGMOID 3
#define STILL_OP_ADD_VECTOR 4
#define STILL_OP_COPY_ROWS 5

#endif

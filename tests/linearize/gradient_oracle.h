/* SPDX-License-Identifier: MIT
 * One query head of every operator in float64, token by token, with the routing given: what the
 * gradients are checked against by finite differences. Shares nothing with the library. */
#ifndef TESTS_LINEARIZE_ATTENTION_ORACLE_H
#define TESTS_LINEARIZE_ATTENTION_ORACLE_H

#include <still/attention.h>

#include <stdint.h>

typedef struct oracle_head {
  still_attention_kind kind;
  int tokens, dim, chunk, window, sinks;
  int hedgehog;                /* STILL: Hedgehog instead of norm-preserved map */
  const double *q, *k, *v;     /* (N, D) */
  const double *gate_logit;    /* (N, D) or NULL */
  const double *aq, *ak;       /* (D, D) or NULL */
  const double *bq, *bk;       /* (D): T2R */
  const double *q_raw, *k_raw; /* (N, D): LIGER_GLA */
  double window_factor;
  const uint8_t *keep;
} oracle_head;

/* y (N, D) */
void oracle_attention(const oracle_head *head, double *y);

#endif

/* SPDX-License-Identifier: MIT
 *
 * The attention operator alone: STILL and its baselines on plain float arrays.
 *
 * Three objects:
 *   still_attention_plan    shapes, options, feature maps; immutable, may be shared by threads
 *   still_attention_cache   what one sequence has left behind in one layer; one thread at a time
 *   still_attention_forward n >= 1 new tokens through the operator; prefill and decode are the same
 *
 * Shapes use these letters everywhere:
 *   H  query heads        G  key/value heads, H % G == 0; query head h reads kv head h / (H / G)
 *   D  head dimension     F  feature dimension of the linear branch, 2 D
 *   N  tokens so far      n  new tokens of this call
 *   C  chunk = length of the local window      m  softmax budget in tokens      lambda  kept per chunk
 *
 * What STILL computes (arXiv 2602.02180), for a query of chunk c, with "old" the tokens of the chunks
 * 0 .. c-2:
 *
 *   SA = kept tokens of old + all of chunk c-1 + chunk c up to the query     (exact softmax attention)
 *   LA = the other tokens of old                                             (linear attention)
 *   M  = max over SA of s_j,  s_j = q . k_j / sqrt(D)
 *   y  = ( sum_SA exp(s_j - M) v_j + g * (phi_q(q) . S) ) / ( sum_SA exp(s_j - M) + phi_q(q) . z )
 *   S  = sum_LA phi_k(k_j) v_j^T  (F x D)       z = sum_LA phi_k(k_j)  (F)
 *
 * M is part of the result, not only a stabiliser: the linear weights are not scaled by exp(-M).
 *
 * Routing is delayed: chunk j is routed when chunk j+2 begins. Its lambda best-scored tokens join the
 * kept tokens of that query head for good, the others are summed up in S and z. The score of token t
 * (self-saliency) is the Kullback-Leibler divergence between the softmax over its last C logits and the
 * same without the token itself:
 *
 *   a = softmax of s over W_t, b = the same over W_t \ {t} (b_t = 0), W_t = the last C tokens up to t
 *   score_t = sum_j a_j log((a_j + 1e-8) / (b_j + 1e-8))
 *
 * Equal scores: the lower position first. Splitting the input in any way, one token at a time
 * included, gives the same scores and routing and the same outputs up to rounding.
 */
#ifndef STILL_ATTENTION_H
#define STILL_ATTENTION_H

#include <still/still.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options ------------------------------------------------------------------------------------ */

typedef enum still_attention_kind {
  STILL_ATTENTION_FULL = 0,  /* causal softmax attention, streamed */
  STILL_ATTENTION_SWA = 1,   /* softmax over the last `window` tokens and the first `sinks` */
  STILL_ATTENTION_STILL = 2, /* the hybrid described above */
  STILL_ATTENTION_LOLCATS =
      3, /* softmax over the last `window` tokens, each weight times a factor of
                                    the head, plus Hedgehog linear attention over everything older; one
                                    denominator, no gate */
  STILL_ATTENTION_LIGER_GLA =
      4, /* half windowed softmax, half gated linear attention on the q, k before
                                    RoPE: y = swa / 2 + softmax(q0) S_t / 2,
                                    S_t = diag(exp(logsigmoid(k0_t) / 16)) S_{t-1} + softmax(k0_t) v_t^T */
  STILL_ATTENTION_HEDGEHOG =
      5,                  /* linear attention over everything, features [softmax(xA), softmax(-xA)],
                                    causal, the token itself included */
  STILL_ATTENTION_T2R = 6 /* the same with features relu(x A + b), A (D, D); y = 0 where the
                                    denominator is 0 */
} still_attention_kind;

/* How tokens are scored for routing. */
typedef enum still_metric {
  STILL_METRIC_SALIENCY = 0, /* the self-saliency score above */
  STILL_METRIC_DIAGONAL = 1, /* a_t, the token's local attention to itself */
  STILL_METRIC_QK = 2,       /* s_t, its logit with itself */
  STILL_METRIC_KEYNORM = 3,  /* ||k_t|| */
  STILL_METRIC_UNIFORM = 4,  /* evenly spaced: with i = position in the chunk, the positions
                                floor((2 r + 1) C / (2 lambda)), r = 0 .. lambda-1, are the best */
  STILL_METRIC_RANDOM =
      5 /* a hash of (seed, head, position) in [0, 1): reproducible, split invariant */
} still_metric;

typedef enum still_routing {
  STILL_ROUTING_PER_HEAD = 0, /* every query head keeps its own tokens (the paper) */
  STILL_ROUTING_PER_GROUP =
      1 /* the query heads of a kv head share one selection: their scores are summed;
                                 H/G times less memory for kept tokens */
} still_routing;

/* How many tokens a finished chunk keeps (lambda). */
typedef enum still_schedule {
  STILL_SCHEDULE_BUDGET =
      0, /* lambda = floor((m - C) / ceil(context / C)); at most m - C are ever kept.
                                The default. */
  STILL_SCHEDULE_FIXED =
      1, /* lambda = keep. With budget > 0 at most budget - C are ever kept; with budget
                                0 the kept tokens grow with the sequence, and so does the memory */
  STILL_SCHEDULE_RATIO =
      2 /* lambda = round(keep_ratio * C); grows with the sequence like FIXED without
                                a budget (inter-layer hybrid experiments) */
} still_schedule;

typedef enum still_dtype { STILL_F32 = 0, STILL_F16 = 1, STILL_BF16 = 2 } still_dtype;

/* Which feature map the linear branch of STILL_ATTENTION_STILL uses. */
typedef enum still_feature_map {
  STILL_FEATURE_NORM_PRESERVED = 0, /* u = ||x|| * (x A) / max(||x A||, 1e-12),
                                       phi = max([softmax(u), softmax(-u)], 1e-12) (paper; spec section 4) */
  STILL_FEATURE_HEDGEHOG = 1        /* u = x A, otherwise the same (ablation) */
} still_feature_map;

typedef struct still_attention_options {
  size_t size;               /* set by STILL_ATTENTION_OPTIONS_INIT */
  still_attention_kind kind; /* default STILL */
  int heads;                 /* H, 1 .. 4096; no default */
  int kv_heads;              /* G, divides H; 0 = H */
  int head_dim;              /* D, 1 .. 1024; no default */

  /* STILL */
  int chunk;                     /* C >= 1, default 64 */
  int budget;                    /* m in tokens, C local ones included; default 512 */
  still_schedule schedule;       /* default BUDGET */
  int keep;                      /* lambda of FIXED, 0 .. C */
  float keep_ratio;              /* of RATIO, 0 .. 1 */
  still_metric metric;           /* default SALIENCY */
  still_routing routing;         /* default PER_HEAD */
  still_feature_map feature_map; /* default NORM_PRESERVED */
  uint64_t seed;                 /* of the RANDOM metric */

  /* SWA, LOLCATS, LIGER_GLA */
  int window; /* W >= 1, default 64 */
  int sinks;  /* first tokens that stay visible under SWA, >= 0, default 0 */

  /* N_max: the context that the budget is certified for (BUDGET schedule), 1 .. 2^31-1; default 8192.
   * A STILL cache accepts more tokens than that: once its budget is full, further chunks keep none.
   * For kinds whose memory grows with the sequence (FULL, FIXED without a budget, RATIO) it is the
   * capacity made at creation, beyond which the cache grows step by step. */
  int context;

  still_dtype cache_type; /* of keys and values in the cache; S and z are always f32. Default F32 */
  int threads;            /* 0 = still_default_threads() */
  /* NULL or "cpu"; "vulkan" (the first real GPU), "vulkan:1" ...: run there, arrays stay on the host. A GPU knows
   * every kind with head_dim a multiple of 4 up to 256, every metric but RANDOM, and cache types F32 and F16;
   * the plan, or the cache, says UNSUPPORTED for the rest, and where the GPU's results fail their self-check. F16 uses
   * matrix units where there are any (errors up to 5e-3 of a row's largest value). A forward that fails on the device half-way leaves
   * a cache that only reset or load can make usable again. */
  const char *device;
} still_attention_options;

#define STILL_ATTENTION_OPTIONS_INIT                                                               \
  {                                                                                                \
    sizeof(still_attention_options), STILL_ATTENTION_STILL, 0, 0, 0, 64, 512,                      \
        STILL_SCHEDULE_BUDGET, 0, 0.125f, STILL_METRIC_SALIENCY, STILL_ROUTING_PER_HEAD,           \
        STILL_FEATURE_NORM_PRESERVED, 0, 64, 0, 8192, STILL_F32, 0, NULL                           \
  }

/* Learned parameters, all optional, copied by the plan.
 *   STILL     feature_q and feature_k both given: linear branch on. Both NULL: salient-only, the tokens
 *             that are not kept are forgotten (no training needed).
 *   LOLCATS, HEDGEHOG, T2R   feature_q and feature_k required.
 *   FULL, SWA, LIGER_GLA     none. */
typedef struct still_attention_weights {
  size_t size;            /* set by STILL_ATTENTION_WEIGHTS_INIT */
  const float *feature_q; /* A_q (H, D, D): row vector x times A, i.e. u[e] = sum_d x[d] A[d][e] */
  const float *feature_k; /* A_k (H, D, D), one for each query head */
  const float *bias_q;    /* T2R: (H, D), NULL = 0 */
  const float *bias_k;    /* T2R: (H, D), NULL = 0 */
  const float *window_factor; /* LOLCATS: w (H) after the sigmoid; NULL = sigmoid(0.1) */
} still_attention_weights;

#define STILL_ATTENTION_WEIGHTS_INIT                                                               \
  { sizeof(still_attention_weights), NULL, NULL, NULL, NULL, NULL }

/* ---- plan --------------------------------------------------------------------------------------- */

typedef struct still_attention_plan still_attention_plan;

/* Checks the options and copies them and the weights. weights may be NULL (none).
 * Errors: ARGUMENT (the sentence names the option and its range; a budget too small for one kept token
 * per chunk names the smallest that works), MEMORY, NUMERIC (a weight is not finite).
 * Thread-safety: a plan is immutable; any number of caches and threads may use it. */
STILL_API still_status still_attention_plan_create(still_attention_plan **plan,
                                                   const still_attention_options *options,
                                                   const still_attention_weights *weights);
STILL_API void still_attention_plan_destroy(still_attention_plan *plan);

/* The options with every default filled in. Owned by the plan. */
STILL_API const still_attention_options *
still_attention_plan_options(const still_attention_plan *plan);

/* lambda, the tokens that a finished chunk keeps; 0 for kinds without routing. */
STILL_API int still_attention_plan_keep(const still_attention_plan *plan);

/* The lambda that a budget m gives for a known length: floor((budget - chunk) / ceil(tokens / chunk)),
 * the lambda(N) of spec section 3; for use as `keep` of STILL_SCHEDULE_FIXED. At least 0. */
STILL_API int still_attention_keep_for_length(int budget, int chunk, int64_t tokens);

/* ---- cache -------------------------------------------------------------------------------------- */

typedef struct still_attention_cache still_attention_cache;

/* What a cache costs and holds. */
typedef struct still_attention_usage {
  uint64_t bytes; /* memory of the cache, kept and near tokens, S and z, work space excluded */
  uint64_t
      work_bytes; /* work space of forward, for all its threads; it does not depend on n. Caches
                          that do not run at the same time, such as a model's layers, share it */
  int64_t tokens; /* N: tokens seen */
  int64_t
      kept_tokens; /* per query head, that routing has kept so far; SWA: the sinks that have left the window */
  int64_t
      near_tokens; /* tokens of the previous and the current chunk; of the window (LOLCATS: W - 1, the last
                          has been summed up for the query to come); FULL: all */
  int64_t softmax_tokens; /* kept + near: what the next query attends to exactly */
  int64_t linear_tokens;  /* summed up in S and z (linear branch on), per query head. Every token is
                               in exactly one of kept, near, linear, forgotten */
  int64_t forgotten_tokens; /* neither attended to nor summed up (salient-only, SWA) */
  int64_t budget_tokens;    /* the paper's m (C local + kept); 0 where there is no bound */
  int64_t
      max_softmax_tokens; /* the most that can be live: (m - C) + 2 C for STILL; 0 = unbounded */
} still_attention_usage;

/* An empty cache for one sequence in one layer. All memory is allocated here, except that growing kinds
 * allocate again past `context`. The plan must outlive the cache. Errors: MEMORY.
 * Thread-safety: one thread at a time for each cache; different caches are independent. */
STILL_API still_status still_attention_cache_create(still_attention_cache **cache,
                                                    const still_attention_plan *plan);
STILL_API void still_attention_cache_destroy(still_attention_cache *cache);

/* Back to the empty sequence; keeps the memory. */
STILL_API void still_attention_cache_reset(still_attention_cache *cache);

STILL_API void still_attention_cache_usage(const still_attention_cache *cache,
                                           still_attention_usage *usage);

/* The bytes that a cache of this plan has once it holds `tokens` tokens; equals usage.bytes then. With more
 * threads than kv heads the near window is held more than once, so it depends a little on the threads. */
STILL_API uint64_t still_attention_cache_bytes(const still_attention_plan *plan, int64_t tokens);

/* Writes the positions that query head `head` keeps, ascending, at most `capacity`; returns how many
 * there are. positions may be NULL when capacity is 0. 0 for kinds without routing. */
STILL_API size_t still_attention_cache_kept(const still_attention_cache *cache, int head,
                                            int64_t *positions, size_t capacity);

/* Copies the linear state of one query head out: state (F, D) and normalizer (F); either may be NULL.
 * ARGUMENT for kinds without one. F = 2 D, or D for LIGER_GLA and T2R (LIGER_GLA has no normalizer). */
STILL_API still_status still_attention_cache_state(const still_attention_cache *cache, int head,
                                                   float *state, float *normalizer);

/* Checkpoint and roll back. A snapshot holds what a later forward may overwrite (near tokens, scores, S,
 * z, counters); kept tokens and full-attention keys are only appended to, so they are not in it. It is
 * valid for the same cache until that cache is reset, restored to an earlier snapshot or destroyed, and
 * costs snapshot_bytes, independent of N. restore brings the cache back bit for bit; ARGUMENT if the cache
 * holds fewer tokens than the snapshot, which is then not its own. Both: DEVICE where a GPU fails (snapshot's
 * content is then undefined; a cache whose restore failed needs reset or load); on the CPU snapshot always succeeds. */
STILL_API size_t still_attention_cache_snapshot_bytes(const still_attention_cache *cache);
STILL_API still_status still_attention_cache_snapshot(const still_attention_cache *cache,
                                                      void *snapshot);
STILL_API still_status still_attention_cache_restore(still_attention_cache *cache,
                                                     const void *snapshot);

/* Save and load everything, in a form that does not depend on capacity or threads (but on the plan's
 * options, which the caller must see to). save writes exactly save_bytes; DEVICE where a GPU fails, on the CPU it
 * always succeeds. load checks every count against the plan and `bytes` before it changes anything: FORMAT, and the
 * cache is as it was. A GPU's format is not the CPU's. */
STILL_API size_t still_attention_cache_save_bytes(const still_attention_cache *cache);
STILL_API still_status still_attention_cache_save(const still_attention_cache *cache, void *bytes);
STILL_API still_status still_attention_cache_load(still_attention_cache *cache, const void *bytes,
                                                  size_t count);

/* ---- forward ------------------------------------------------------------------------------------ */

/* Rows of heads: element (head h, token t, channel d) is data[h * head_stride + t * token_stride + d].
 * (heads, tokens, D) arrays have head_stride = n * D, token_stride = D; the output of a projection
 * (tokens, heads * D) has head_stride = D, token_stride = heads * D. */
typedef struct still_rows {
  const float *data;
  size_t head_stride;
  size_t token_stride;
} still_rows;

typedef struct still_attention_inputs {
  size_t size;  /* set by STILL_ATTENTION_INPUTS_INIT */
  still_rows q; /* (H, n, D) after RoPE */
  still_rows k; /* (G, n, D) after RoPE */
  still_rows v; /* (G, n, D) */
  still_rows
      gate; /* STILL: g (H, n, D) in (0, 1), sigmoid already taken; data NULL = 1 everywhere */
  still_rows q_raw; /* LIGER_GLA: q (H, n, D) before RoPE */
  still_rows k_raw; /* LIGER_GLA: k (G, n, D) before RoPE */
  float *scores;    /* out, optional: (H, n) routing scores of the new tokens */
  /* What the linear branch contributes, out, optional, on the CPU only (a GPU says UNSUPPORTED):
   * (H, n) in 0 .. 1, and 0 where there is none: chunks 0 and 1 of STILL, salient-only, FULL, SWA,
   * and LIGER_GLA, whose halves have no denominator in common. NULL costs nothing. */
  float *linear_mass;   /* its share of the denominator: phi_q(q) . z / (sum_SA + phi_q(q) . z) */
  float *linear_output; /* its share of the numerator's length, behind the gate:
                           ||g * (phi_q(q) . S)|| / (||sum_SA ... v|| + ||g * (phi_q(q) . S)||) */
  /* Optional: asked again and again, on any of the call's threads; where it says something else than 0 the forward ends
   * within milliseconds with CANCELLED (so it must go on saying that), and the cache is good for restore, load and reset only. The CPU asks, a GPU does
   * not. */
  int (*stop)(void *user);
  void *stop_user;
} still_attention_inputs;

#define STILL_ATTENTION_INPUTS_INIT                                                                \
  {                                                                                                \
    sizeof(still_attention_inputs), {NULL, 0, 0}, {NULL, 0, 0}, {NULL, 0, 0}, {NULL, 0, 0},        \
        {NULL, 0, 0}, {NULL, 0, 0}, NULL, NULL, NULL, NULL, NULL                                   \
  }

/* Runs n >= 1 new tokens through the operator and leaves them in the cache.
 *   y  (H, n, D) out, strides in floats as in still_rows; must not overlap the inputs.
 * Any n; chunk borders are handled inside. Memory does not depend on n.
 * Errors: ARGUMENT, MEMORY (growing kinds; or another thread's forward holds the work space and there is
 * no memory for a second one), CANCELLED (inputs.stop); on any other error the cache is as it was. Values are not checked: a NaN that goes
 * in comes out, in its own token's row and in those that attend to it, never in an earlier one (on a Vulkan device also in
 * earlier ones among the same 64 tokens; in half precision values above 65504 are infinite there).
 * Thread-safety: one thread for each cache at a time. Uses options.threads OpenMP threads inside; the
 * result is the same for any number of them, bit for bit. */
STILL_API still_status still_attention_forward(const still_attention_plan *plan,
                                               still_attention_cache *cache, size_t n,
                                               const still_attention_inputs *inputs, float *y,
                                               size_t y_head_stride, size_t y_token_stride);

/* Rows in a buffer of the application on the plan's device, float32, token-major without gaps: (n, H*D) or (n, G*D). */
typedef struct still_buffer_rows {
  uint64_t buffer; /* VkBuffer with the usage STORAGE_BUFFER; 0 = none */
  uint64_t offset; /* of the first row in bytes, a multiple of minStorageBufferOffsetAlignment */
} still_buffer_rows;

typedef struct still_attention_buffers {
  size_t size;                                   /* set by STILL_ATTENTION_BUFFERS_INIT */
  still_buffer_rows q, k, v, gate, q_raw, k_raw; /* as in still_attention_inputs */
  still_buffer_rows y;                           /* out (n, H*D) */
} still_attention_buffers;

#define STILL_ATTENTION_BUFFERS_INIT                                                               \
  {                                                                                                \
    sizeof(still_attention_buffers), {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {             \
      0, 0                                                                                         \
    }                                                                                              \
  }

/* still_attention_forward without a way over the host, for a plan on a device of still_share_device. It runs on the shared
 * queue behind what was submitted there before (writes of its compute and copy commands are seen), and y is written when it
 * returns. Buffers must hold n rows and be no longer than the device binds (maxStorageBufferRange). Errors as there;
 * ARGUMENT too where the plan is on no shared device. */
STILL_API still_status still_attention_forward_buffers(const still_attention_plan *plan,
                                                       still_attention_cache *cache, size_t n,
                                                       const still_attention_buffers *buffers);

/* Names as the command line and adapter files write them: "full", "swa", "still", "lolcats",
 * "liger-gla", "hedgehog", "t2r"; "saliency", "diagonal", "qk", "keynorm", "uniform", "random".
 * NULL for a value outside the enum; the parsers return ARGUMENT and list what is known. */
STILL_API const char *still_attention_kind_name(still_attention_kind kind);
STILL_API still_status still_attention_kind_parse(const char *name, still_attention_kind *kind);
STILL_API const char *still_metric_name(still_metric metric);
STILL_API still_status still_metric_parse(const char *name, still_metric *metric);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: MIT */
#include "model/model_config.h"

#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What this library knows. A GGUF name may stand for several classes: the first row counts. */
static const still_architecture architectures[] = {
    {"llama", "LlamaForCausalLM", false, false, true},
    {"llama", "MistralForCausalLM", false, false, true},
    {"qwen2", "Qwen2ForCausalLM", true, false, false},
    {"qwen3", "Qwen3ForCausalLM", false, true, false},
};
enum { ARCHITECTURES = sizeof architectures / sizeof architectures[0] };

/* The integers of a configuration under both names, with their ranges. */
typedef struct integer_field {
  const char *gguf, *json;
  size_t offset;
  uint64_t least, most;
  bool required;
} integer_field;

#define FIELD(member) offsetof(still_model_config, member)
static const integer_field integer_fields[] = {
    {"block_count", "num_hidden_layers", FIELD(layers), 1, 1024, true},
    {"attention.head_count", "num_attention_heads", FIELD(heads), 1, 4096, true},
    {"attention.head_count_kv", "num_key_value_heads", FIELD(kv_heads), 1, 4096, false},
    {"attention.key_length", "head_dim", FIELD(head_dim), 2, 1024, false},
    {"embedding_length", "hidden_size", FIELD(width), 1, 1 << 20, true},
    {"feed_forward_length", "intermediate_size", FIELD(feed_forward), 1, 1 << 22, true},
    {"vocab_size", "vocab_size", FIELD(vocabulary), 1, 1 << 24, false},
    {"context_length", "max_position_embeddings", FIELD(trained_context), 1, INT32_MAX, true},
    {"attention.sliding_window", "sliding_window", FIELD(sliding_window), 0, INT32_MAX, false},
};
enum { INTEGER_FIELDS = sizeof integer_fields / sizeof integer_fields[0] };

static still_status unknown_architecture(const char *name, bool gguf) {
  char known[256] = "";
  for (int i = 0; i < ARCHITECTURES; i++) {
    const char *word = gguf ? architectures[i].gguf : architectures[i].class;
    if (gguf && i && !strcmp(word, architectures[i - 1].gguf)) continue;
    strcat(strcat(known, *known ? ", " : ""), word);
  }
  return still_fail(STILL_ERROR_UNSUPPORTED, "architecture '%s' is not known; known are: %s", name,
                    known);
}

static still_status set_integer(still_model_config *config, const integer_field *field,
                                const char *key, uint64_t value) {
  if (value < field->least || value > field->most)
    return still_fail(STILL_ERROR_FORMAT, "%s is %llu, must be %llu .. %llu", key,
                      (unsigned long long)value, (unsigned long long)field->least,
                      (unsigned long long)field->most);
  *(int *)((char *)config + field->offset) = (int)value;
  return STILL_OK;
}

static still_status check_positive(const char *what, double value) {
  if (isfinite(value) && value > 0 && value <= 1e12) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "%s is %g, must be a positive number", what, value);
}

static still_status check_rope(const still_rope *rope) {
  if (!(rope->theta > 1) || !isfinite(rope->theta))
    return still_fail(STILL_ERROR_FORMAT, "the base of the rotation is %g, must be above 1",
                      rope->theta);
  if (rope->scaling == STILL_ROPE_PLAIN) return STILL_OK;
  STILL_TRY(check_positive("rope scaling factor", rope->factor));
  if (rope->scaling == STILL_ROPE_LINEAR) return STILL_OK;
  STILL_TRY(check_positive("rope scaling original context", rope->original_context));
  if (rope->scaling == STILL_ROPE_LLAMA3) {
    STILL_TRY(check_positive("rope scaling low_freq_factor", rope->low_frequency));
    if (rope->high_frequency > rope->low_frequency) return STILL_OK;
    return still_fail(STILL_ERROR_FORMAT,
                      "rope scaling high_freq_factor is %g, must be above low_freq_factor %g",
                      rope->high_frequency, rope->low_frequency);
  }
  STILL_TRY(check_positive("rope scaling beta_fast", rope->beta_fast));
  STILL_TRY(check_positive("rope scaling beta_slow", rope->beta_slow));
  return check_positive("rope scaling attention_factor", rope->attention_factor);
}

/* Fills in what may be left out and checks how the numbers fit together. */
static still_status finish(still_model_config *config) {
  if (!config->kv_heads) config->kv_heads = config->heads;
  if (config->heads % config->kv_heads)
    return still_fail(STILL_ERROR_FORMAT, "%d query heads are no multiple of %d key/value heads",
                      config->heads, config->kv_heads);
  if (!config->head_dim) {
    if (config->width % config->heads)
      return still_fail(STILL_ERROR_FORMAT, "width %d is no multiple of %d heads", config->width,
                        config->heads);
    config->head_dim = config->width / config->heads;
  }
  if (config->head_dim < 2 || config->head_dim > 1024 || config->head_dim % 2)
    return still_fail(STILL_ERROR_FORMAT, "head dimension is %d, must be an even number, 2 .. 1024",
                      config->head_dim);
  if (!(config->norm_eps > 0) || config->norm_eps > 1)
    return still_fail(STILL_ERROR_FORMAT, "epsilon of the norm is %g, must be in (0, 1]",
                      (double)config->norm_eps);
  still_rope *rope = &config->rope;
  if (rope->scaling == STILL_ROPE_YARN && rope->attention_factor == 0)
    rope->attention_factor = rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1;
  return check_rope(rope);
}

static still_status parse_scaling(still_rope *rope, const char *name) {
  static const struct {
    const char *name;
    still_rope_scaling scaling;
  } known[] = {{"none", STILL_ROPE_PLAIN},
               {"default", STILL_ROPE_PLAIN},
               {"linear", STILL_ROPE_LINEAR},
               {"llama3", STILL_ROPE_LLAMA3},
               {"yarn", STILL_ROPE_YARN}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (!strcmp(name, known[i].name)) {
      rope->scaling = known[i].scaling;
      return STILL_OK;
    }
  return still_fail(
      STILL_ERROR_UNSUPPORTED,
      "rope scaling '%s' is not known; known are: none, default, linear, llama3, yarn", name);
}

static void set_defaults(still_model_config *config) {
  *config = (still_model_config){0};
  config->rope = (still_rope){.theta = 10000, .beta_fast = 32, .beta_slow = 1};
}

/* ---- GGUF --------------------------------------------------------------------------------------- */

typedef struct gguf_source {
  const still_gguf *gguf;
  const char *prefix;
} gguf_source;

static void full_key(char out[128], const gguf_source *source, const char *key) {
  snprintf(out, 128, "%s.%s", source->prefix, key);
}

static still_status wrong_type(const char *key, const char *wanted) {
  return still_fail(STILL_ERROR_FORMAT, "%s must be %s", key, wanted);
}

static still_status gguf_integer(const gguf_source *source, const integer_field *field,
                                 still_model_config *config) {
  char key[128];
  full_key(key, source, field->gguf);
  uint64_t value;
  if (still_gguf_get_u64(source->gguf, key, &value)) return set_integer(config, field, key, value);
  if (still_gguf_has_key(source->gguf, key)) return wrong_type(key, "a single integer >= 0");
  if (!field->required) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "%s is missing", key);
}

/* Leaves *value where the key is missing. */
static still_status gguf_number(const gguf_source *source, const char *name, double *value) {
  char key[128];
  full_key(key, source, name);
  if (still_gguf_get_f64(source->gguf, key, value) || !still_gguf_has_key(source->gguf, key))
    return STILL_OK;
  return wrong_type(key, "a number");
}

/* A key that, where present, must hold this value. */
static still_status gguf_expect(const gguf_source *source, const char *name, uint64_t expected) {
  char key[128];
  full_key(key, source, name);
  uint64_t value = expected;
  if (still_gguf_has_key(source->gguf, key) && !still_gguf_get_u64(source->gguf, key, &value))
    return wrong_type(key, "a single integer >= 0");
  if (value == expected) return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED, "%s is %llu, only %llu is supported", key,
                    (unsigned long long)value, (unsigned long long)expected);
}

static still_status gguf_rope(const gguf_source *source, still_model_config *config) {
  still_rope *rope = &config->rope;
  STILL_TRY(gguf_number(source, "rope.freq_base", &rope->theta));
  char key[128];
  full_key(key, source, "rope.scaling.type");
  const char *text;
  size_t length;
  if (still_gguf_get_string(source->gguf, key, &text, &length)) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), text);
    STILL_TRY(parse_scaling(rope, name));
  }
  double divided = 0; /* the key of the oldest files */
  STILL_TRY(gguf_number(source, "rope.scale_linear", &divided));
  if (divided && divided != 1 && rope->scaling == STILL_ROPE_PLAIN)
    *rope = (still_rope){.theta = rope->theta, .scaling = STILL_ROPE_LINEAR, .factor = divided};
  rope->original_context = config->trained_context;
  double relative = 1; /* to the factor that yarn derives itself */
  STILL_TRY(gguf_number(source, "rope.scaling.factor", &rope->factor));
  STILL_TRY(gguf_number(source, "rope.scaling.original_context_length", &rope->original_context));
  STILL_TRY(gguf_number(source, "rope.scaling.attn_factor", &relative));
  STILL_TRY(gguf_number(source, "rope.scaling.yarn_beta_fast", &rope->beta_fast));
  STILL_TRY(gguf_number(source, "rope.scaling.yarn_beta_slow", &rope->beta_slow));
  if (rope->scaling == STILL_ROPE_YARN && rope->factor > 0)
    rope->attention_factor = relative * (rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1);
  return STILL_OK;
}

/* The vocabulary's size where no key says it: that of the list of tokens, else of the embedding. */
static void gguf_vocabulary(const still_gguf *gguf, still_model_config *config) {
  if (config->vocabulary) return;
  const still_tensor *embedding = still_gguf_find_tensor(gguf, "token_embd.weight");
  if (embedding && embedding->dimensions == 2 && embedding->shape[0] <= 1 << 24)
    config->vocabulary = (int)embedding->shape[0];
}

static const still_architecture *gguf_architecture(const char *name) {
  for (int i = 0; i < ARCHITECTURES; i++)
    if (!strcmp(name, architectures[i].gguf)) return &architectures[i];
  return NULL;
}

static void copy_text(char *out, size_t bytes, const still_gguf *gguf, const char *key) {
  const char *text;
  size_t length;
  if (!still_gguf_get_string(gguf, key, &text, &length)) return;
  snprintf(out, bytes, "%.*s", (int)(length < bytes ? length : bytes - 1), text);
}

static still_status read_gguf(still_model_config *config, const still_gguf *gguf) {
  set_defaults(config);
  char name[64] = "";
  copy_text(name, sizeof name, gguf, "general.architecture");
  if (!*name) return still_fail(STILL_ERROR_FORMAT, "general.architecture is missing or no string");
  config->architecture = gguf_architecture(name);
  if (!config->architecture) return unknown_architecture(name, true);
  copy_text(config->name, sizeof config->name, gguf, "general.name");
  config->qkv_bias = config->architecture->qkv_bias;
  config->tied_embeddings = !still_gguf_find_tensor(gguf, "output.weight");

  const gguf_source source = {gguf, name};
  for (int i = 0; i < INTEGER_FIELDS; i++)
    STILL_TRY(gguf_integer(&source, &integer_fields[i], config));
  gguf_vocabulary(gguf, config);
  if (!config->vocabulary)
    return still_fail(STILL_ERROR_FORMAT, "token_embd.weight is missing or no matrix");
  double eps = 0;
  STILL_TRY(gguf_number(&source, "attention.layer_norm_rms_epsilon", &eps));
  config->norm_eps = (float)eps;
  STILL_TRY(gguf_rope(&source, config));
  STILL_TRY(finish(config));
  STILL_TRY(gguf_expect(&source, "rope.dimension_count", (uint64_t)config->head_dim));
  STILL_TRY(gguf_expect(&source, "attention.value_length", (uint64_t)config->head_dim));
  return gguf_expect(&source, "expert_count", 0);
}

still_status still_model_config_from_gguf(still_model_config *config, const still_gguf *gguf,
                                          const char *where) {
  const still_status status = read_gguf(config, gguf);
  return status ? still_fail_in(status, "%s", where) : STILL_OK;
}

/* Writing. */

static still_status put_text(still_gguf_writer *writer, const char *key, const char *text) {
  return still_gguf_put_string(writer, key, text, strlen(text));
}

static still_status put_number(still_gguf_writer *writer, const char *prefix, const char *name,
                               double value) {
  char key[128];
  full_key(key, &(gguf_source){.prefix = prefix}, name);
  return still_gguf_put_f32(writer, key, (float)value);
}

static still_status put_integer(still_gguf_writer *writer, const char *prefix, const char *name,
                                int value) {
  char key[128];
  full_key(key, &(gguf_source){.prefix = prefix}, name);
  return still_gguf_put_u32(writer, key, (uint32_t)value);
}

static still_status put_scaling(still_gguf_writer *writer, const char *prefix,
                                const still_rope *rope) {
  const bool yarn = rope->scaling == STILL_ROPE_YARN;
  if (!yarn && rope->scaling != STILL_ROPE_LINEAR) return STILL_OK;
  char key[128];
  full_key(key, &(gguf_source){.prefix = prefix}, "rope.scaling.type");
  STILL_TRY(put_text(writer, key, yarn ? "yarn" : "linear"));
  STILL_TRY(put_number(writer, prefix, "rope.scaling.factor", rope->factor));
  if (!yarn) return STILL_OK;
  const double derived = rope->factor > 1 ? 0.1 * log(rope->factor) + 1 : 1;
  STILL_TRY(put_integer(writer, prefix, "rope.scaling.original_context_length",
                        (int)rope->original_context));
  STILL_TRY(
      put_number(writer, prefix, "rope.scaling.attn_factor", rope->attention_factor / derived));
  STILL_TRY(put_number(writer, prefix, "rope.scaling.yarn_beta_fast", rope->beta_fast));
  return put_number(writer, prefix, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

still_status still_model_config_put(still_gguf_writer *writer, const still_model_config *config) {
  const char *prefix = config->architecture->gguf;
  STILL_TRY(put_text(writer, "general.architecture", prefix));
  if (*config->name) STILL_TRY(put_text(writer, "general.name", config->name));
  for (int i = 0; i < INTEGER_FIELDS; i++) {
    const int value = *(const int *)((const char *)config + integer_fields[i].offset);
    if (value) STILL_TRY(put_integer(writer, prefix, integer_fields[i].gguf, value));
  }
  STILL_TRY(put_integer(writer, prefix, "attention.value_length", config->head_dim));
  STILL_TRY(put_integer(writer, prefix, "rope.dimension_count", config->head_dim));
  STILL_TRY(put_number(writer, prefix, "attention.layer_norm_rms_epsilon", config->norm_eps));
  STILL_TRY(put_number(writer, prefix, "rope.freq_base", config->rope.theta));
  return put_scaling(writer, prefix, &config->rope);
}

/* ---- config.json -------------------------------------------------------------------------------- */

static still_status json_architecture(const still_json *json, still_model_config *config) {
  const still_json *list;
  const char *name;
  STILL_TRY(still_json_get(json, "architectures", STILL_JSON_ARRAY, &list));
  STILL_TRY(still_json_to_string(still_json_first(list), "architectures[0]", &name));
  for (int i = 0; i < ARCHITECTURES; i++)
    if (!strcmp(name, architectures[i].class)) config->architecture = &architectures[i];
  return config->architecture ? STILL_OK : unknown_architecture(name, false);
}

static still_status json_integers(const still_json *json, still_model_config *config) {
  for (int i = 0; i < INTEGER_FIELDS; i++) {
    const integer_field *field = &integer_fields[i];
    const bool present = still_json_type_of(still_json_find(json, field->json)) != STILL_JSON_NULL;
    if (!present && !field->required) continue;
    uint64_t value;
    STILL_TRY(still_json_get_u64(json, field->json, &value));
    STILL_TRY(set_integer(config, field, field->json, value));
  }
  if (config->vocabulary) return STILL_OK;
  return still_fail(STILL_ERROR_FORMAT, "vocab_size is missing");
}

/* "rope_scaling" with its kind under "rope_type" or, older, "type"; newest: all in "rope_parameters". */
static still_status json_rope(const still_json *json, still_model_config *config) {
  still_rope *rope = &config->rope;
  rope->original_context = config->trained_context;
  STILL_TRY(still_json_optional_f64(json, "rope_theta", &rope->theta));
  const still_json *scaling = still_json_find(json, "rope_parameters");
  if (still_json_type_of(scaling) == STILL_JSON_NULL)
    scaling = still_json_find(json, "rope_scaling");
  if (still_json_type_of(scaling) == STILL_JSON_NULL) return STILL_OK;
  if (still_json_type_of(scaling) != STILL_JSON_OBJECT)
    return still_fail(STILL_ERROR_FORMAT, "rope_scaling must be an object or null");
  const char *name = NULL;
  STILL_TRY(still_json_optional_string(scaling, "type", &name));
  STILL_TRY(still_json_optional_string(scaling, "rope_type", &name));
  if (!name)
    return still_fail(STILL_ERROR_FORMAT, "rope_scaling has neither 'rope_type' nor 'type'");
  STILL_TRY(parse_scaling(rope, name));
  const struct {
    const char *key;
    double *value;
  } numbers[] = {{"rope_theta", &rope->theta},
                 {"factor", &rope->factor},
                 {"low_freq_factor", &rope->low_frequency},
                 {"high_freq_factor", &rope->high_frequency},
                 {"original_max_position_embeddings", &rope->original_context},
                 {"attention_factor", &rope->attention_factor},
                 {"beta_fast", &rope->beta_fast},
                 {"beta_slow", &rope->beta_slow}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    STILL_TRY(still_json_optional_f64(scaling, numbers[i].key, numbers[i].value));
  return STILL_OK;
}

/* What would change the mathematics in ways that the forward does not know. */
static still_status json_refuse(const still_json *json) {
  const char *activation = "silu";
  STILL_TRY(still_json_optional_string(json, "hidden_act", &activation));
  if (strcmp(activation, "silu"))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "hidden_act '%s' is not supported; supported is: silu", activation);
  static const char *const switches[] = {"attention_bias", "mlp_bias", "use_sliding_window"};
  for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
    bool on = false;
    STILL_TRY(still_json_optional_bool(json, switches[i], &on));
    if (on) return still_fail(STILL_ERROR_UNSUPPORTED, "%s true is not supported", switches[i]);
  }
  double rotated = 1;
  STILL_TRY(still_json_optional_f64(json, "partial_rotary_factor", &rotated));
  if (rotated == 1) return STILL_OK;
  return still_fail(STILL_ERROR_UNSUPPORTED, "partial_rotary_factor %g is not supported", rotated);
}

static still_status read_json(const still_json *json, still_model_config *config) {
  set_defaults(config);
  STILL_TRY(json_architecture(json, config));
  config->qkv_bias = config->architecture->qkv_bias;
  STILL_TRY(json_integers(json, config));
  const char *name = "";
  STILL_TRY(still_json_optional_string(json, "_name_or_path", &name));
  snprintf(config->name, sizeof config->name, "%s", name);
  double eps = 1e-6; /* transformers' default */
  STILL_TRY(still_json_optional_f64(json, "rms_norm_eps", &eps));
  config->norm_eps = (float)eps;
  /* the families that have this switch give a window's size even where it is off */
  if (still_json_find(json, "use_sliding_window")) config->sliding_window = 0;
  STILL_TRY(still_json_optional_bool(json, "tie_word_embeddings", &config->tied_embeddings));
  STILL_TRY(json_rope(json, config));
  STILL_TRY(json_refuse(json));
  return finish(config);
}

still_status still_model_config_from_json(still_model_config *config, const char *text,
                                          size_t bytes, const char *where) {
  still_json *json = NULL;
  STILL_TRY(still_json_parse(&json, where, text, bytes, STILL_JSON_FILE_LIMIT));
  const still_status status = read_json(json, config);
  still_json_free(json);
  return status ? still_fail_in(status, "%s", where) : STILL_OK;
}

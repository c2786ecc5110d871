/* SPDX-License-Identifier: MIT */
#include "tokenizer/pretokenizer.h"

#include "base/memory.h"
#include "tokenizer/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* The patterns as the models' own files write them. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char digit_pattern[] = "\\p{N}";
static const char number_pattern[] = "\\p{N}+";
static const char llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char tekken_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum { MOST_STAGES = 4 };

/* Each stage cuts the pieces of the one before. */
typedef struct known_split {
  const char *name;
  const char *gguf;    /* values of tokenizer.ggml.pre, each between spaces */
  const char *written; /* the one that is written */
  const char *stages[2];
} known_split;

static const known_split known[] = {
    {"gpt2", " gpt-2 gpt2 ", "gpt-2", {gpt2_pattern}},
    {"smollm",
     " smollm starcoder refact command-r codeshell ",
     "smollm",
     {digit_pattern, gpt2_pattern}},
    {"llama3", " llama3 llama-v3 llama-bpe falcon3 smaug-bpe dbrx ", "llama-bpe", {llama3_pattern}},
    {"qwen2", " qwen2 stablelm2 deepseek-r1-qwen megrez ", "qwen2", {qwen2_pattern}},
    {"tekken", " tekken ", "tekken", {tekken_pattern}},
};
enum { KNOWN = sizeof known / sizeof *known };

struct still_pretokenizer {
  pcre2_general_context *context;
  pcre2_code *stages[MOST_STAGES];
  const char *patterns[MOST_STAGES]; /* of those, from above */
  int stage_count;
};

/* ---- patterns */

static void *regex_allocate(size_t bytes, void *user) {
  (void)user;
  void *block;
  return still_alloc(&block, 1, bytes, "a pattern") ? NULL : block;
}

static void regex_release(void *block, void *user) {
  (void)user;
  still_free(block);
}

/* Writes \s and \S out as Unicode's White_Space: PCRE2's own includes U+180E, the models'
 * libraries' do not. */
static void expand_spaces(char *out, const char *pattern) {
  static const char spaces[] = "\\t-\\r\\x{85}\\p{Z}";
  bool in_class = false;
  for (; *pattern; pattern++) {
    const bool escape = *pattern == '\\';
    if (escape && pattern[1] == 's' && in_class) {
      out = stpcpy(out, spaces), pattern++;
    } else if (escape && (pattern[1] == 's' || pattern[1] == 'S')) {
      out = stpcpy(out, pattern[1] == 's' ? "[" : "[^");
      out = stpcpy(stpcpy(out, spaces), "]"), pattern++;
    } else {
      if (*pattern == '[') in_class = true;
      if (*pattern == ']') in_class = false;
      *out++ = *pattern;
      if (escape) *out++ = *++pattern;
    }
  }
  *out = 0;
}

static still_status add_stage(still_pretokenizer *p, const char *pattern) {
  char expanded[1024]; /* the longest known pattern takes half */
  int error;
  PCRE2_SIZE at;
  if (p->stage_count == MOST_STAGES)
    return still_fail(STILL_ERROR_UNSUPPORTED, "pre_tokenizer: more than %d steps", MOST_STAGES);
  expand_spaces(expanded, pattern);
  pcre2_compile_context *compile = pcre2_compile_context_create(p->context);
  if (!compile) return STILL_ERROR_MEMORY; /* the allocation set the sentence */
  pcre2_code *code =
      pcre2_compile((PCRE2_SPTR)expanded, PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, compile);
  pcre2_compile_context_free(compile);
  if (!code) return still_fail(STILL_ERROR_MEMORY, "pre_tokenizer: pattern: PCRE2 error %d", error);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where that fails, matching interprets */
  p->patterns[p->stage_count] = pattern;
  p->stages[p->stage_count++] = code;
  return STILL_OK;
}

static still_status create_empty(still_pretokenizer **pretokenizer) {
  still_pretokenizer *p;
  *pretokenizer = NULL;
  STILL_TRY(STILL_ALLOC(&p, 1, "a pre-tokenizer"));
  p->context = pcre2_general_context_create(regex_allocate, regex_release, NULL);
  if (!p->context) {
    still_free(p);
    return STILL_ERROR_MEMORY;
  }
  *pretokenizer = p;
  return STILL_OK;
}

void still_pretokenizer_destroy(still_pretokenizer *p) {
  if (!p) return;
  for (int i = 0; i < p->stage_count; i++) pcre2_code_free(p->stages[i]);
  pcre2_general_context_free(p->context);
  still_free(p);
}

/* ---- by name */

still_status still_pretokenizer_create(still_pretokenizer **pretokenizer, const char *name) {
  *pretokenizer = NULL;
  size_t k = 0;
  while (k < KNOWN && strcmp(known[k].name, name)) k++;
  if (k == KNOWN)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "pre-tokenizer '%.100s' is unknown; known are gpt2, smollm, llama3, qwen2, "
                      "tekken",
                      name);
  STILL_TRY(create_empty(pretokenizer));
  still_status status = STILL_OK;
  for (int i = 0; i < 2 && known[k].stages[i] && !status; i++)
    status = add_stage(*pretokenizer, known[k].stages[i]);
  if (status) {
    still_pretokenizer_destroy(*pretokenizer);
    *pretokenizer = NULL;
  }
  return status;
}

const char *still_pretokenizer_name_of_gguf(const char *pre, size_t length) {
  char word[64];
  if (!length || length > sizeof word - 3 || memchr(pre, ' ', length) || memchr(pre, 0, length))
    return NULL;
  word[0] = ' ';
  memcpy(word + 1, pre, length);
  memcpy(word + 1 + length, " ", 2);
  for (size_t k = 0; k < KNOWN; k++)
    if (strstr(known[k].gguf, word)) return known[k].name;
  return NULL;
}

const char *still_pretokenizer_gguf_name(const still_pretokenizer *p) {
  for (size_t k = 0; k < KNOWN; k++)
    if (p->patterns[0] == known[k].stages[0] && p->patterns[1] == known[k].stages[1] &&
        !p->patterns[2])
      return known[k].written;
  return NULL;
}

bool still_pretokenizer_keeps_words(const char *gguf_name) {
  const char *name = still_pretokenizer_name_of_gguf(gguf_name, strlen(gguf_name));
  return name && (!strcmp(name, "llama3") || !strcmp(name, "tekken"));
}

/* ---- from tokenizer.json */

static still_status add_split(still_pretokenizer *p, const still_json *step) {
  const char *regex = NULL, *behavior = "";
  bool invert = false;
  const still_json *pattern = still_json_find(step, "pattern");
  STILL_TRY(still_json_optional_string(pattern, "Regex", &regex));
  STILL_TRY(still_json_optional_string(step, "behavior", &behavior));
  STILL_TRY(still_json_optional_bool(step, "invert", &invert));
  /* The patterns match every character, so removing what does not match is the same. */
  if (strcmp(behavior, invert ? "Removed" : "Isolated"))
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "pre_tokenizer: Split with behavior '%.40s', only Isolated is known",
                      behavior);
  for (size_t k = 0; k < KNOWN && regex; k++)
    if (!known[k].stages[1] && !strcmp(known[k].stages[0], regex))
      return add_stage(p, known[k].stages[0]);
  return still_fail(STILL_ERROR_UNSUPPORTED,
                    "pre_tokenizer: Split by '%.200s' is unknown; known are the patterns of Llama "
                    "3, GPT-2, Qwen2 and Mistral's Tekken",
                    regex ? regex : "(no Regex)");
}

static still_status add_byte_level(still_pretokenizer *p, const still_json *step) {
  bool add_prefix_space = true, use_regex = true;
  STILL_TRY(still_json_optional_bool(step, "add_prefix_space", &add_prefix_space));
  STILL_TRY(still_json_optional_bool(step, "use_regex", &use_regex));
  if (add_prefix_space)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "pre_tokenizer: ByteLevel with add_prefix_space, only without is known");
  return use_regex ? add_stage(p, gpt2_pattern) : STILL_OK;
}

static still_status add_step(still_pretokenizer *p, const still_json *step) {
  const char *type;
  bool individual = false;
  STILL_TRY(still_json_get_string(step, "type", &type));
  if (!strcmp(type, "Split")) return add_split(p, step);
  if (!strcmp(type, "ByteLevel")) return add_byte_level(p, step);
  if (!strcmp(type, "Digits")) {
    STILL_TRY(still_json_optional_bool(step, "individual_digits", &individual));
    return add_stage(p, individual ? digit_pattern : number_pattern);
  }
  return still_fail(STILL_ERROR_UNSUPPORTED,
                    "pre_tokenizer '%.60s' is unknown; known are ByteLevel, Split, Digits and "
                    "Sequence of these",
                    type);
}

static still_status add_steps(still_pretokenizer *p, const still_json *description) {
  const char *type;
  const still_json *steps;
  STILL_TRY(still_json_get_string(description, "type", &type));
  if (strcmp(type, "Sequence")) return add_step(p, description);
  STILL_TRY(still_json_get(description, "pretokenizers", STILL_JSON_ARRAY, &steps));
  for (const still_json *s = still_json_first(steps); s; s = still_json_next(s))
    STILL_TRY(add_step(p, s));
  return STILL_OK;
}

still_status still_pretokenizer_from_json(still_pretokenizer **pretokenizer,
                                          const still_json *description) {
  STILL_TRY(create_empty(pretokenizer));
  const still_status status = add_steps(*pretokenizer, description);
  if (status) {
    still_pretokenizer_destroy(*pretokenizer);
    *pretokenizer = NULL;
  }
  return status;
}

/* ---- splitting */

struct still_splitter {
  const still_pretokenizer *pretokenizer;
  pcre2_match_context *context;
  pcre2_jit_stack *stack; /* so that matching takes none of the caller's stack */
  pcre2_match_data *match[MOST_STAGES];
};

enum { JIT_STACK_START = 32 * 1024, JIT_STACK_MOST = 1024 * 1024 };

void still_splitter_destroy(still_splitter *s) {
  if (!s) return;
  for (int i = 0; i < MOST_STAGES; i++) pcre2_match_data_free(s->match[i]);
  pcre2_jit_stack_free(s->stack);
  pcre2_match_context_free(s->context);
  still_free(s);
}

still_status still_splitter_create(still_splitter **splitter, const still_pretokenizer *p) {
  still_splitter *s;
  *splitter = NULL;
  STILL_TRY(STILL_ALLOC(&s, 1, "splitting text"));
  s->pretokenizer = p;
  s->context = pcre2_match_context_create(p->context);
  s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MOST, p->context);
  bool complete = s->context != NULL; /* without a stack PCRE2 uses 32 KiB of the caller's */
  for (int i = 0; i < p->stage_count; i++) {
    s->match[i] = pcre2_match_data_create(1, p->context);
    complete = complete && s->match[i];
  }
  if (!complete) {
    still_splitter_destroy(s);
    return STILL_ERROR_MEMORY;
  }
  if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
  /* The known patterns step back over one run of characters at most, so their time is bounded
   * without PCRE2's counters, which long runs of blanks would reach. */
  pcre2_set_match_limit(s->context, UINT32_MAX);
  *splitter = s;
  return STILL_OK;
}

/* Length of the match that begins at `at` or, where the text before the next match is none, of that
 * text. */
static still_status next_piece(still_splitter *s, int stage, const char *text, size_t bytes,
                               size_t at, size_t *length) {
  const pcre2_code *code = s->pretokenizer->stages[stage];
  pcre2_match_data *match = s->match[stage];
  int found = pcre2_match(code, (PCRE2_SPTR)text, bytes, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                          match, s->context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = pcre2_match(code, (PCRE2_SPTR)text, bytes, at,
                        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | PCRE2_NO_JIT, match, s->context);
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    return still_fail(STILL_ERROR_MEMORY, "splitting text: PCRE2 error %d at byte %zu", found, at);
  const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
  const size_t end = found < 0 ? bytes : range[0] > at ? range[0] : range[1];
  *length = end - at;
  return STILL_OK;
}

static still_status split_valid(still_splitter *s, int stage, const char *text, size_t bytes,
                                still_word_callback *word, void *user) {
  if (stage == s->pretokenizer->stage_count) return word(user, text, bytes);
  for (size_t at = 0, length = 0; at < bytes; at += length) {
    STILL_TRY(next_piece(s, stage, text, bytes, at, &length));
    STILL_TRY(split_valid(s, stage + 1, text + at, length, word, user));
  }
  return STILL_OK;
}

/* Bytes of valid UTF-8 from text on. */
static size_t valid_run(const char *text, size_t bytes) {
  size_t at = 0, length;
  while (at < bytes) {
    if ((uint8_t)text[at] < 0x80)
      length = 1;
    else if (still_utf8_scan(text + at, bytes - at, &length) != STILL_UTF8_VALID)
      break;
    at += length;
  }
  return at;
}

still_status still_split(still_splitter *s, const char *text, size_t bytes,
                         still_word_callback *word, void *user) {
  for (size_t at = 0; at < bytes;) {
    const size_t valid = valid_run(text + at, bytes - at);
    if (valid) STILL_TRY(split_valid(s, 0, text + at, valid, word, user));
    at += valid;
    if (at < bytes) STILL_TRY(word(user, text + at++, 1));
  }
  return STILL_OK;
}

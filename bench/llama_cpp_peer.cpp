// SPDX-License-Identifier: MIT
// One measurement of llama.cpp, for compare-llama-cpp.py, which compiles this against the peer's
// libraries.
//
//   llama_cpp_peer speed  MODEL THREADS CACHE TOKENS DECODE
//       reads TOKENS tokens, then DECODE single ones
//   llama_cpp_peer greedy MODEL THREADS CACHE FILE COUNT
//       continues the text of FILE with the likeliest tokens
//   llama_cpp_peer logits MODEL THREADS CACHE FILE BLOCK
//       the logits after every token of FILE's text, BLOCK tokens a batch: floats to FILE.logits
//
// CACHE: f16 or f32. Flash attention is on. Prints one line of JSON.
#include "ggml-backend.h"
#include "llama.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static const int batch = 512;

static double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] static void fail(const char *what) {
  fprintf(stderr, "llama_cpp_peer: %s\n", what);
  exit(1);
}

static void quiet(ggml_log_level, const char *, void *) {}

struct peer {
  llama_model *model;
  const llama_vocab *vocab;
  llama_context *context;
  double load_seconds;
};

static peer open_peer(const char *path, int threads, const char *cache, int tokens) {
  peer p;
  const double start = now();
  p.model = llama_model_load_from_file(path, llama_model_default_params());
  if (!p.model) fail("cannot load the model");
  p.vocab = llama_model_get_vocab(p.model);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = tokens;
  params.n_batch = params.n_ubatch = batch;
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.type_k = params.type_v = strcmp(cache, "f32") ? GGML_TYPE_F16 : GGML_TYPE_F32;
  params.no_perf = true;
  p.context = llama_init_from_model(p.model, params);
  if (!p.context) fail("cannot make a context");
  p.load_seconds = now() - start;
  return p;
}

static double feed(const peer &p, llama_token *tokens, int count) {
  const double start = now();
  for (int done = 0; done < count; done += batch)
    if (llama_decode(p.context, llama_batch_get_one(tokens + done, std::min(batch, count - done))))
      fail("cannot decode");
  llama_synchronize(p.context);
  return now() - start;
}

static void speed(const char *path, int threads, const char *cache, int tokens, int decode) {
  const peer p = open_peer(path, threads, cache, tokens + decode + batch);
  const int vocabulary = llama_vocab_n_tokens(p.vocab);
  std::vector<llama_token> ids(tokens + 1);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = (llama_token)(i * 7919 % (vocabulary - 8));
  std::vector<llama_token> warm(ids.begin(), ids.begin() + std::min(tokens, 32));
  feed(p, warm.data(), (int)warm.size()); // touches the weights, as our own program's loading does
  llama_memory_clear(llama_get_memory(p.context), true);
  const double prefill = feed(p, ids.data(), tokens);
  double decoding = 0;
  for (int i = 0; i < decode; i++) decoding += feed(p, &ids[tokens], 1);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf(
      "{\"prompt_tokens\":%d,\"prompt_seconds\":%.6f,\"answer_tokens\":%d,\"answer_seconds\":%.6f,"
      "\"load_seconds\":%.6f,\"cache_bytes\":%zu,\"peak_resident_bytes\":%ld}\n",
      tokens, prefill, decode, decoding, p.load_seconds, llama_state_seq_get_size(p.context, 0),
      usage.ru_maxrss * 1024L);
}

// The likeliest token, and by how much it leads the second.
static llama_token likeliest(const peer &p, float *lead) {
  const float *logits = llama_get_logits_ith(p.context, -1);
  const int n = llama_vocab_n_tokens(p.vocab);
  const int best = (int)(std::max_element(logits, logits + n) - logits);
  float second = -1e30f;
  for (int i = 0; i < n; i++)
    if (i != best) second = std::max(second, logits[i]);
  *lead = logits[best] - second;
  return best;
}

static std::vector<llama_token> tokens_of(const peer &p, const std::string &text) {
  std::vector<llama_token> ids(text.size() + 16);
  const int n = llama_tokenize(p.vocab, text.data(), (int)text.size(), ids.data(), (int)ids.size(),
                               true, false);
  if (n <= 0) fail("cannot tokenize");
  ids.resize(n);
  return ids;
}

static std::string contents(const char *file) {
  std::ifstream stream(file, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
}

static void logits(const char *path, int threads, const char *cache, const char *file, int block) {
  const std::string text = contents(file);
  const peer p = open_peer(path, threads, cache, (int)text.size() + batch);
  const std::vector<llama_token> ids = tokens_of(p, text);
  std::ofstream out(std::string(file) + ".logits", std::ios::binary);
  llama_batch part = llama_batch_init(block, 0, 1);
  for (size_t first = 0; first < ids.size(); first += block) {
    part.n_tokens = (int)std::min<size_t>(block, ids.size() - first);
    for (int i = 0; i < part.n_tokens; i++) {
      part.token[i] = ids[first + i];
      part.pos[i] = (llama_pos)(first + i);
      part.n_seq_id[i] = 1;
      part.seq_id[i][0] = 0;
      part.logits[i] = 1;
    }
    if (llama_decode(p.context, part)) fail("cannot decode");
    for (int i = 0; i < part.n_tokens; i++)
      out.write((const char *)llama_get_logits_ith(p.context, i),
                sizeof(float) * llama_vocab_n_tokens(p.vocab));
  }
  printf("{\"tokens\":%zu,\"vocabulary\":%d}\n", ids.size(), llama_vocab_n_tokens(p.vocab));
}

static void greedy(const char *path, int threads, const char *cache, const char *file, int count) {
  const std::string text = contents(file);
  const peer p = open_peer(path, threads, cache, (int)text.size() + count + batch);
  std::vector<llama_token> ids = tokens_of(p, text);
  feed(p, ids.data(), (int)ids.size());
  std::string pieces, leads;
  for (int i = 0; i < count; i++) {
    char piece[256], number[64];
    float lead;
    llama_token token = likeliest(p, &lead);
    if (llama_vocab_is_eog(p.vocab, token)) break;
    const int length = llama_token_to_piece(p.vocab, token, piece, sizeof piece, 0, false);
    pieces += i ? ",[" : "[";
    for (int b = 0; b < length; b++)
      pieces += (b ? "," : "") + std::to_string((unsigned char)piece[b]);
    pieces += "]";
    snprintf(number, sizeof number, "%s%.6f", i ? "," : "", lead);
    leads += number;
    feed(p, &token, 1);
  }
  printf("{\"prompt_tokens\":%zu,\"pieces\":[%s],\"leads\":[%s]}\n", ids.size(), pieces.c_str(),
         leads.c_str());
}

int main(int argc, char **argv) {
  if (argc != 7) fail("wrong number of arguments");
  llama_log_set(quiet, nullptr);
#ifdef BACKENDS // shared libraries: one for each kind of processor, the best is taken
  ggml_backend_load_all_from_path(BACKENDS);
#endif
  llama_backend_init();
  if (!strcmp(argv[1], "speed"))
    speed(argv[2], atoi(argv[3]), argv[4], atoi(argv[5]), atoi(argv[6]));
  else if (!strcmp(argv[1], "logits"))
    logits(argv[2], atoi(argv[3]), argv[4], argv[5], atoi(argv[6]));
  else
    greedy(argv[2], atoi(argv[3]), argv[4], argv[5], atoi(argv[6]));
}

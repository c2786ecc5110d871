/* SPDX-License-Identifier: MIT
 * Introduces: C++. Handles live in std::unique_ptr, a failing status becomes an exception.
 *
 *   08_use_from_cpp MODEL TEXT */
#include <still/model.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

template <auto destroy> struct Destroy {
  template <typename T> void operator()(T *handle) const {
    destroy(handle);
  }
};
using Model = std::unique_ptr<still_model, Destroy<still_model_destroy>>;
using Session = std::unique_ptr<still_session, Destroy<still_session_destroy>>;

static void check(still_status status) {
  if (status != STILL_OK) throw std::runtime_error(still_last_error());
}

static Model open_model(const std::string &path) {
  still_model *model = nullptr;
  check(still_model_open(&model, path.c_str(), nullptr));
  return Model(model);
}

static Session new_session(const Model &model, const still_session_options &options) {
  still_session *session = nullptr;
  check(still_session_create(&session, model.get(), &options));
  return Session(session);
}

static std::vector<still_token> encode(const Model &model, const std::string &text) {
  std::vector<still_token> ids(text.size() + 64);
  std::size_t count = 0;
  check(still_tokenize(still_model_tokenizer(model.get()), text.data(), text.size(),
                       STILL_TOKENIZE_ADD_BOS, ids.data(), ids.size(), &count));
  ids.resize(count);
  return ids;
}

int main(int argc, char **argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: %s MODEL TEXT\n", argv[0]), 2;
  try {
    Model model = open_model(argv[1]);
    still_session_options options = STILL_SESSION_OPTIONS_INIT;
    options.attention = STILL_ATTENTION_STILL;
    options.routing = STILL_ROUTING_PER_GROUP;
    Session session = new_session(model, options);
    std::vector<still_token> ids = encode(model, argv[2]);
    check(still_session_evaluate(session.get(), ids.data(), ids.size(), nullptr, nullptr));

    const float *logits = still_session_logits(session.get());
    int size = still_tokenizer_size(still_model_tokenizer(model.get()));
    auto best = static_cast<still_token>(std::max_element(logits, logits + size) - logits);
    char piece[64];
    std::size_t bytes =
        still_token_text(still_model_tokenizer(model.get()), best, 0, piece, sizeof piece);
    std::printf("after %zu tokens, likeliest:%.*s\n", ids.size(), static_cast<int>(bytes), piece);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

/* SPDX-License-Identifier: MIT
 * Messages to ids: the text the family's template would make, with the messages' own texts marked
 * as plain. */
#include "base/memory.h"
#include "tokenizer/encode.h"

#include <string.h>

typedef struct writer {
  const still_tokenizer *tokenizer;
  char *text;
  size_t bytes, room;
  still_text_range *plain;
  size_t plain_count, plain_room;
  const char *system; /* LLAMA2, MISTRAL: goes into the next user message */
} writer;

static still_status add(writer *w, const char *text, size_t bytes) {
  if (bytes > w->room - w->bytes) {
    const size_t room = 2 * w->room + bytes + 256;
    STILL_TRY(STILL_REALLOC(&w->text, room, "a chat"));
    w->room = room;
  }
  if (bytes) memcpy(w->text + w->bytes, text, bytes);
  w->bytes += bytes;
  return STILL_OK;
}

/* Text of the template. */
static still_status frame(writer *w, const char *text) {
  return add(w, text, strlen(text));
}

static still_status plain(writer *w, const char *text, size_t bytes) {
  if (w->plain_count == w->plain_room) {
    const size_t room = 2 * w->plain_room + 16;
    STILL_TRY(STILL_REALLOC(&w->plain, room, "a chat"));
    w->plain_room = room;
  }
  w->plain[w->plain_count++] = (still_text_range){w->bytes, w->bytes + bytes};
  return add(w, text, bytes);
}

static still_status content(writer *w, const char *text) {
  return plain(w, text, strlen(text));
}

/* Without the blanks around it, as Llama's templates have it. */
static still_status trimmed(writer *w, const char *text) {
  static const char blanks[] = " \t\n\v\f\r";
  text += strspn(text, blanks);
  size_t bytes = strlen(text);
  while (bytes && strchr(blanks, text[bytes - 1])) bytes--;
  return plain(w, text, bytes);
}

static still_status end_of_sequence(writer *w) {
  size_t length;
  if (w->tokenizer->eos < 0) return STILL_OK;
  const char *eos =
      still_vocabulary_bytes(&w->tokenizer->vocabulary, (size_t)w->tokenizer->eos, &length);
  return add(w, eos, length);
}

static bool is_role(const still_message *message, const char *role) {
  return !strcmp(message->role, role);
}

/* ---- families: `begin` before the first message, `message` for each, `generate` before an
 * answer */

static still_status llama3_header(writer *w, const char *role) {
  STILL_TRY(frame(w, "<|start_header_id|>"));
  STILL_TRY(frame(w, role));
  return frame(w, "<|end_header_id|>\n\n");
}

/* The dates that Llama 3.1's own template falls back to. */
static still_status llama3_dates(writer *w) {
  if (!w->tokenizer->chat.dated) return STILL_OK;
  return frame(w, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
}

static still_status llama3_begin(writer *w, const still_message *first) {
  if (!w->tokenizer->chat.dated || (first && is_role(first, "system"))) return STILL_OK;
  STILL_TRY(llama3_header(w, "system"));
  STILL_TRY(llama3_dates(w));
  return frame(w, "<|eot_id|>");
}

static still_status llama3_message(writer *w, const still_message *message, size_t index) {
  STILL_TRY(llama3_header(w, message->role));
  if (!index && is_role(message, "system")) STILL_TRY(llama3_dates(w));
  STILL_TRY(trimmed(w, message->content));
  return frame(w, "<|eot_id|>");
}

static still_status llama3_generate(writer *w) {
  return llama3_header(w, "assistant");
}

static still_status chatml_begin(writer *w, const still_message *first) {
  const char *system = w->tokenizer->chat.default_system;
  if (!system || (first && is_role(first, "system"))) return STILL_OK;
  STILL_TRY(frame(w, "<|im_start|>system\n"));
  STILL_TRY(content(w, system));
  return frame(w, "<|im_end|>\n");
}

static still_status chatml_message(writer *w, const still_message *message, size_t index) {
  (void)index;
  STILL_TRY(frame(w, "<|im_start|>"));
  STILL_TRY(frame(w, message->role));
  STILL_TRY(frame(w, "\n"));
  STILL_TRY(content(w, message->content));
  return frame(w, "<|im_end|>\n");
}

static still_status chatml_generate(writer *w) {
  return frame(w, "<|im_start|>assistant\n");
}

static still_status llama2_message(writer *w, const still_message *message, size_t index) {
  (void)index;
  if (is_role(message, "system")) {
    w->system = message->content;
    return STILL_OK;
  }
  if (is_role(message, "assistant")) {
    STILL_TRY(frame(w, " "));
    STILL_TRY(trimmed(w, message->content));
    STILL_TRY(frame(w, " "));
    return end_of_sequence(w);
  }
  STILL_TRY(frame(w, "[INST] "));
  if (w->system) {
    STILL_TRY(frame(w, "<<SYS>>\n"));
    STILL_TRY(content(w, w->system));
    STILL_TRY(frame(w, "\n<</SYS>>\n\n"));
    w->system = NULL;
  }
  STILL_TRY(trimmed(w, message->content));
  return frame(w, " [/INST]");
}

static still_status mistral_message(writer *w, const still_message *message, size_t index) {
  const still_chat_template *chat = &w->tokenizer->chat;
  (void)index;
  if (is_role(message, "system")) {
    w->system = message->content;
    return STILL_OK;
  }
  if (is_role(message, "assistant")) {
    if (chat->space_answers) STILL_TRY(frame(w, " "));
    STILL_TRY(content(w, message->content));
    STILL_TRY(end_of_sequence(w));
    return chat->space_ends ? frame(w, " ") : STILL_OK;
  }
  STILL_TRY(frame(w, chat->open));
  if (w->system) {
    STILL_TRY(content(w, w->system));
    STILL_TRY(frame(w, "\n\n"));
    w->system = NULL;
  }
  STILL_TRY(content(w, message->content));
  return frame(w, chat->close);
}

typedef struct chat_format {
  const char *name;
  still_status (*begin)(writer *, const still_message *first);
  still_status (*message)(writer *, const still_message *, size_t index);
  still_status (*generate)(writer *);
  const char *after_answer; /* what stands between an answer's end token and the next message */
  bool joins_system;        /* the system message is a part of the user's */
} chat_format;

static const chat_format formats[] = {
    [STILL_CHAT_LLAMA2] = {"llama2", NULL, llama2_message, NULL, "", true},
    [STILL_CHAT_LLAMA3] = {"llama3", llama3_begin, llama3_message, llama3_generate, "", false},
    [STILL_CHAT_MISTRAL] = {"mistral", NULL, mistral_message, NULL, "", true},
    [STILL_CHAT_CHATML] = {"chatml", chatml_begin, chatml_message, chatml_generate, "\n", false},
};

const char *still_tokenizer_chat_family(const still_tokenizer *t) {
  return t->chat.family < STILL_CHAT_LLAMA2 ? NULL : formats[t->chat.family].name;
}

/* ---- all messages */

static still_status check(const still_tokenizer *t, const still_message *messages, size_t count,
                          size_t first) {
  if (t->chat.family == STILL_CHAT_NONE)
    return still_fail(STILL_ERROR_UNSUPPORTED, "the model has no chat template");
  if (t->chat.family == STILL_CHAT_UNKNOWN)
    return still_fail(STILL_ERROR_UNSUPPORTED,
                      "the model's chat template is of no known family (llama2, llama3, mistral, "
                      "chatml); it begins '%s'",
                      t->chat.beginning);
  if (first > count)
    return still_fail(STILL_ERROR_ARGUMENT, "still_format_chat: first is %zu, must be 0 .. %zu",
                      first, count);
  for (size_t i = first; i < count; i++) {
    const still_message *m = &messages[i];
    if (!m->role || !m->content)
      return still_fail(STILL_ERROR_ARGUMENT, "still_format_chat: message %zu has no %s", i,
                        m->role ? "content" : "role");
    if (!is_role(m, "system") && !is_role(m, "user") && !is_role(m, "assistant"))
      return still_fail(STILL_ERROR_UNSUPPORTED,
                        "message %zu: role '%.40s', must be system, user or assistant", i, m->role);
  }
  return STILL_OK;
}

static still_status write_all(writer *w, const still_message *messages, size_t count, size_t first,
                              bool generate) {
  const chat_format *format = &formats[w->tokenizer->chat.family];
  if (!first && format->begin) STILL_TRY(format->begin(w, count ? messages : NULL));
  if (first && is_role(&messages[first - 1], "assistant"))
    STILL_TRY(frame(w, format->after_answer));
  if (first && format->joins_system && is_role(&messages[first - 1], "system"))
    w->system = messages[first - 1].content;
  for (size_t i = first; i < count; i++) STILL_TRY(format->message(w, &messages[i], i));
  return generate && format->generate ? format->generate(w) : STILL_OK;
}

still_status still_format_chat(const still_tokenizer *tokenizer, const still_message *messages,
                               size_t count, size_t first, int add_generation, still_token *ids,
                               size_t capacity, size_t *id_count) {
  STILL_TRY(check(tokenizer, messages, count, first));
  writer w = {.tokenizer = tokenizer};
  const bool begin = !first && (tokenizer->add_bos || tokenizer->chat.bos);
  still_status status = write_all(&w, messages, count, first, add_generation);
  if (!status)
    status = still_encode(tokenizer, w.text ? w.text : "", w.bytes, STILL_TOKENIZE_PARSE_SPECIAL,
                          begin, w.plain, w.plain_count, ids, capacity, id_count);
  still_free(w.text);
  still_free(w.plain);
  return status;
}

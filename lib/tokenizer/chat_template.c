/* SPDX-License-Identifier: MIT */
#include "tokenizer/chat_template.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static still_status copy_range(char **out, const char *begin, const char *end) {
  const size_t length = (size_t)(end - begin);
  STILL_TRY(still_alloc((void **)out, length + 1, 1, "a chat template"));
  memcpy(*out, begin, length);
  return STILL_OK;
}

/* The mark with the blanks that the template writes around it: "[INST] ". */
static still_status copy_mark(char **out, const char *text, const char *mark) {
  const char *begin = strstr(text, mark);
  const char *end = begin ? begin + strlen(mark) : NULL;
  if (!begin) return still_copy_string(out, mark);
  while (begin > text && begin[-1] == ' ') begin--;
  while (*end == ' ') end++;
  return copy_range(out, begin, end);
}

/* The text between "<|im_start|>system\n" and "<|im_end|>" where it is a plain one: what some
 * models say when there is no system message. */
static still_status find_default_system(still_chat_template *chat, const char *text) {
  static const char start[] = "<|im_start|>system", stop[] = "<|im_end|>";
  for (const char *at = text; (at = strstr(at, start));) {
    at += sizeof start - 1;
    const size_t line_break = *at == '\n' ? 1 : !strncmp(at, "\\n", 2) ? 2 : 0;
    const char *begin = at + line_break, *end = strstr(begin, stop);
    if (!line_break || !end || end == begin) continue;
    if (strcspn(begin, "'\"{}\\") < (size_t)(end - begin)) continue; /* an expression */
    return copy_range(&chat->default_system, begin, end);
  }
  return STILL_OK;
}

static still_status parse_mistral(still_chat_template *chat, const char *text) {
  chat->space_answers = strstr(text, "' ' + message") || strstr(text, "\" \" + message");
  chat->space_ends = strstr(text, "eos_token + ' '") || strstr(text, "eos_token + \" \"");
  STILL_TRY(copy_mark(&chat->open, text, "[INST]"));
  return copy_mark(&chat->close, text, "[/INST]");
}

static still_status parse(still_chat_template *chat, const char *text) {
  chat->bos = strstr(text, "bos_token") || strstr(text, "<|begin_of_text|>");
  if (strstr(text, "<|start_header_id|>")) {
    chat->family = STILL_CHAT_LLAMA3;
    chat->dated = strstr(text, "Cutting Knowledge Date") != NULL;
  } else if (strstr(text, "<|im_start|>")) {
    chat->family = STILL_CHAT_CHATML;
    return find_default_system(chat, text);
  } else if (strstr(text, "[INST]") && strstr(text, "<<SYS>>")) {
    chat->family = STILL_CHAT_LLAMA2;
  } else if (strstr(text, "[INST]") && !strstr(text, "[SYSTEM_PROMPT]")) {
    chat->family = STILL_CHAT_MISTRAL;
    return parse_mistral(chat, text);
  } else {
    chat->family = STILL_CHAT_UNKNOWN;
    return copy_range(&chat->beginning, text, text + strnlen(text, 60));
  }
  return STILL_OK;
}

still_status still_chat_template_parse(still_chat_template *chat, const char *text, size_t bytes) {
  STILL_TRY(copy_range(&chat->text, text, text + bytes));
  return parse(chat, chat->text);
}

void still_chat_template_free(still_chat_template *chat) {
  still_free(chat->default_system);
  still_free(chat->open);
  still_free(chat->close);
  still_free(chat->beginning);
  still_free(chat->text);
  memset(chat, 0, sizeof *chat);
}

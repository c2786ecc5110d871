/* SPDX-License-Identifier: MIT
 * still-run: from tokens in to text out. */
#include "program_arguments.h"
#include "program_model.h"
#include "program_terminal.h"
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int run_append(run_text *text, const char *data, size_t bytes) {
  if (text->bytes + bytes + 1 > text->capacity) {
    size_t capacity = 2 * text->capacity + bytes + 1;
    char *larger = realloc(text->data, capacity);
    if (!larger) {
      program_complain("no memory for %zu bytes of text", capacity);
      return PROGRAM_FAILED;
    }
    text->data = larger;
    text->capacity = capacity;
  }
  memcpy(text->data + text->bytes, data, bytes);
  text->data[text->bytes += bytes] = 0;
  return PROGRAM_DONE;
}

int run_reserve(run_state *run, size_t count) {
  if (count <= run->id_capacity) return PROGRAM_DONE;
  still_token *larger = realloc(run->ids, count * sizeof *larger);
  if (!larger) {
    program_complain("no memory for %zu tokens", count);
    return PROGRAM_FAILED;
  }
  run->ids = larger;
  run->id_capacity = count;
  return PROGRAM_DONE;
}

int run_encode(run_state *run, const char *text, size_t bytes, unsigned flags, size_t *count) {
  if (run_reserve(run, bytes / 2 + 64)) return PROGRAM_FAILED;
  for (;;) {
    if (still_tokenize(run->tokenizer, text, bytes, flags, run->ids, run->id_capacity, count))
      return program_failure("prompt");
    if (*count <= run->id_capacity) return PROGRAM_DONE;
    if (run_reserve(run, *count)) return PROGRAM_FAILED;
  }
}

/* A block of the session: what is lost where it is interrupted. */
static still_status evaluate_block(run_state *run, const still_token *ids, size_t count,
                                   program_progress *progress) {
  double start = program_seconds();
  program_interrupts_cancel(run->session);
  still_status status =
      still_session_evaluate(run->session, ids, count, program_progress_show, progress);
  program_interrupts_cancel(NULL);
  run->prompt_seconds += program_seconds() - start;
  if (status) return status;
  run->prompt_tokens += (int64_t)count;
  progress->base += count;
  for (size_t i = 0; i < count; i++) still_sampler_accept(run->sampler, ids[i]);
  return STILL_OK;
}

int run_evaluate(run_state *run, size_t count) {
  static program_progress progress;
  if (!progress.label) progress = program_progress_begin("reading", "tokens", 1);
  still_session_usage usage;
  still_session_get_usage(run->session, &usage);
  const size_t block = (size_t)usage.block;
  still_status status = STILL_OK;
  for (size_t done = 0; !status && done < count; done += block)
    status = evaluate_block(run, run->ids + done, count - done < block ? count - done : block,
                            &progress);
  program_progress_end();
  if (status == STILL_ERROR_CANCELLED) return PROGRAM_FAILED; /* said at the end */
  if (!status) return PROGRAM_DONE;
  program_failure(NULL);
  if (status == STILL_ERROR_LIMIT)
    program_complain("-c N plans for more; --attn still reads on in the memory it has");
  return PROGRAM_FAILED;
}

/* Bytes at the end of the answer that may be the beginning of the stop text. */
static size_t held_back(const run_text *answer, const char *stop) {
  size_t length = strlen(stop);
  for (size_t n = length < answer->bytes ? length : answer->bytes; n > 0; n--)
    if (!memcmp(answer->data + answer->bytes - n, stop, n)) return n;
  return 0;
}

static void show(run_state *run, size_t upto) {
  if (!arguments.json && upto > run->shown) {
    fwrite(run->answer.data + run->shown, 1, upto - run->shown, stdout);
    fflush(stdout);
  }
  run->shown = upto;
}

/* The text of a token joins the answer. Returns 1 when the stop text is complete: the answer ends before
 * it; -1 when memory is out. */
static int take_text(run_state *run, const char *text, size_t bytes) {
  if (run_append(&run->answer, text, bytes)) return -1;
  if (!arguments.stop || !*arguments.stop) {
    show(run, run->answer.bytes);
    return 0;
  }
  char *found = strstr(run->answer.data + run->shown, arguments.stop);
  if (found) {
    run->answer.bytes = (size_t)(found - run->answer.data);
    *found = 0;
  }
  show(run,
       found ? run->answer.bytes : run->answer.bytes - held_back(&run->answer, arguments.stop));
  return found != NULL;
}

/* The next token. Returns 0 to go on, 1 at an end (run->end says which), -1 on failure. */
static int answer_token(run_state *run) {
  still_token token;
  const float *logits = still_session_logits(run->session);
  if (still_sampler_sample(run->sampler, logits, run->vocabulary, &token)) {
    program_failure("sampler");
    return -1;
  }
  const char *text = "";
  size_t bytes = 0;
  int ended = still_tokenizer_is_end(run->tokenizer, token);
  if (!ended && still_decoder_push(run->decoder, token, &text, &bytes)) {
    program_failure("decoder");
    return -1;
  }
  run->answer_tokens += !ended;
  int stopped = take_text(run, text, bytes);
  still_status status = still_session_evaluate(run->session, &token, 1, NULL, NULL);
  if (status && status != STILL_ERROR_LIMIT) {
    program_failure(NULL);
    return -1;
  }
  run->end = ended ? "end" : stopped ? "stop" : status ? "context" : NULL;
  return stopped < 0 ? -1 : run->end != NULL;
}

int run_answer(run_state *run) {
  double start = program_seconds();
  int result = 0;
  run->answer.bytes = run->shown = 0;
  run->end = "limit";
  for (int n = 0; !result && n != arguments.predict; n++) {
    run->end = "limit";
    if (program_interrupted()) {
      run->end = "interrupted";
      break;
    }
    result = answer_token(run);
    if (!run->end) run->end = "limit";
  }
  const char *text;
  size_t bytes;
  if (result >= 0 && !still_decoder_flush(run->decoder, &text, &bytes) && strcmp(run->end, "stop"))
    result = take_text(run, text, bytes);
  if (run->answer.data) show(run, run->answer.bytes);
  run->answer_seconds += program_seconds() - start;
  return result < 0 ? PROGRAM_FAILED : PROGRAM_DONE;
}

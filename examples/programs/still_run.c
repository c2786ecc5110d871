/* SPDX-License-Identifier: MIT
 * still-run: answers from a text of any length, or talks, with a language model. */
#include "program_arguments.h"
#include "program_input.h"
#include "program_model.h"
#include "program_terminal.h"
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

run_arguments arguments = {.predict = 512,
                           .temperature = 0.8f,
                           .top_k = 40,
                           .top_p = 0.95f,
                           .min_p = 0.05f,
                           .repeat_penalty = 1,
                           .repeat_last = 64,
                           .seed = -1};

static const program_flag run_flags[] = {
    FLAG_HEADING("what to answer"),
    FLAG_TEXT("-p, --prompt", "TEXT", "the prompt; after the text of -f, if both are given",
              &arguments.prompt),
    FLAG_TEXT("-f, --file", "FILE", "the prompt from a file of any length; - reads stdin",
              &arguments.file),
    FLAG_TEXT("-sys, --system-prompt", "TEXT", "system message (chat models)", &arguments.system),
    FLAG_SWITCH("-cnv, --conversation", "talk: ask for more after each answer",
                &arguments.conversation),
    FLAG_SWITCH("-no-cnv, --no-conversation", "continue the text as it is, without chat template",
                &arguments.no_conversation),
    FLAG_SWITCH("-st, --single-turn", "end after one answer", &arguments.single_turn),
    FLAG_RANGE(INTEGER, "-n, --predict, --n-predict", "N", "most tokens of an answer; 0 only reads",
               &arguments.predict, 0, INT_MAX, "-1", "no limit"),
    FLAG_TEXT("-r, --reverse-prompt", "TEXT", "end the answer before this text", &arguments.stop),
    FLAG_SWITCH("--parse-special", "names of special tokens in the prompt become those tokens",
                &arguments.parse_special),
    FLAG_HEADING("choice of tokens"),
    FLAG_RANGE(NUMBER, "--temp", "X", "temperature; <= 0: the most likely token",
               &arguments.temperature, -100, 100, NULL, NULL),
    FLAG_RANGE(INTEGER, "--top-k", "N", "among the N most likely; 0: all", &arguments.top_k, 0,
               INT_MAX, NULL, NULL),
    FLAG_RANGE(NUMBER, "--top-p", "X", "among the most likely with this sum; 1: all",
               &arguments.top_p, 0, 1, NULL, NULL),
    FLAG_RANGE(NUMBER, "--min-p", "X", "at least this part of the most likely; 0: all",
               &arguments.min_p, 0, 1, NULL, NULL),
    FLAG_RANGE(NUMBER, "--repeat-penalty", "X", "against repetition; 1: none",
               &arguments.repeat_penalty, 0.01, 100, NULL, NULL),
    FLAG_RANGE(INTEGER, "--repeat-last-n", "N", "tokens that the penalty looks back",
               &arguments.repeat_last, 0, 65536, NULL, NULL),
    FLAG_RANGE(LONG, "-s, --seed", "N", "of the choice", &arguments.seed, 0, 9e15, "-1",
               "from the system"),
    FLAG_HEADING("state"),
    FLAG_TEXT("--state-save", "FILE", "save the conversation at the end", &arguments.state_save),
    FLAG_TEXT("--state-load", "FILE", "go on from a saved conversation", &arguments.state_load),
    FLAG_HEADING("what to show"),
    FLAG_SWITCH("--dry-run", "say what it would take and whether that fits; evaluate nothing",
                &arguments.dry_run),
    FLAG_SWITCH("--json", "answer and figures as one JSON object on stdout", &arguments.json),
    FLAG_SWITCH("--perf", "more figures at the end", &arguments.perf),
    FLAG_TEXT("--saliency", "FILE", "write an HTML page that shows what was kept (--attn still)",
              &arguments.saliency),
    FLAG_SWITCH("--list-devices", "list the devices and end", &arguments.list_devices),
    FLAG_SWITCH("-q, --quiet", "nothing on stderr but errors", &arguments.quiet),
    FLAG_SWITCH("-v, --verbose", "more log lines; twice: all", &arguments.verbose),
    FLAG_SWITCH("--version", "print the version and end", &arguments.version),
    FLAG_SWITCH("-h, --help", "print this and end", &arguments.help),
    FLAG_END};

static const program_flag *const flags[] = {program_model_flags, run_flags, NULL};

/* ---- prompts --------------------------------------------------------------------------------------- */

/* What is done with the pieces of the prompt: evaluated, or only counted (--dry-run). */
typedef struct prompt_sink {
  run_state *run;
  unsigned flags; /* of the next piece */
  int64_t counted;
  int count_only;
} prompt_sink;

static int take_piece(prompt_sink *sink, const char *text, size_t bytes) {
  size_t count;
  if (run_encode(sink->run, text, bytes, sink->flags, &count)) return PROGRAM_FAILED;
  sink->flags = (sink->flags & ~(unsigned)STILL_TOKENIZE_ADD_BOS) | STILL_TOKENIZE_CONTINUE;
  sink->counted += (int64_t)count;
  return sink->count_only ? PROGRAM_DONE : run_evaluate(sink->run, count);
}

static int take_file(prompt_sink *sink, const char *path) {
  program_input input;
  const char *text;
  size_t bytes;
  if (program_input_open(&input, path)) return PROGRAM_FAILED;
  int code;
  while (!(code = program_input_next(&input, &text, &bytes)) && bytes)
    if ((code = take_piece(sink, text, bytes))) break;
  if (!code && input.is_cut)
    program_complain(
        "-f %s: no line or word ends for 1 MiB; cut between characters there, tokens may differ",
        path);
  program_input_close(&input);
  return code;
}

/* The text as it is, in pieces: memory does not grow with it. */
static int take_plain_prompt(prompt_sink *sink) {
  int code = PROGRAM_DONE;
  if (arguments.parse_special) sink->flags |= STILL_TOKENIZE_PARSE_SPECIAL;
  if (sink->count_only || !still_session_position(sink->run->session))
    sink->flags |= STILL_TOKENIZE_ADD_BOS;
  else
    sink->flags |= STILL_TOKENIZE_CONTINUE;
  if (arguments.file) code = take_file(sink, arguments.file);
  if (!code && arguments.file && arguments.prompt) code = take_piece(sink, "\n", 1);
  if (!code && arguments.prompt)
    code = take_piece(sink, arguments.prompt, strlen(arguments.prompt));
  if (!code && !sink->counted && (sink->count_only || !still_session_position(sink->run->session)))
    code = take_piece(sink, "", 0); /* begin-of-sequence alone, where the model has one */
  return code;
}

/* ---- conversation ---------------------------------------------------------------------------------- */

typedef struct conversation {
  still_message *messages;
  size_t count, capacity, evaluated;
} conversation;

static int add_message(conversation *talk, const char *role, const char *content) {
  if (talk->count == talk->capacity) {
    talk->capacity = 2 * talk->capacity + 4;
    still_message *larger = realloc(talk->messages, talk->capacity * sizeof *larger);
    if (!larger) goto fail;
    talk->messages = larger;
  }
  char *copy = strdup(content);
  if (!copy) goto fail;
  talk->messages[talk->count++] = (still_message){role, copy};
  return PROGRAM_DONE;
fail:
  program_complain("no memory for the conversation");
  return PROGRAM_FAILED;
}

static void end_conversation(conversation *talk) {
  for (size_t i = 0; i < talk->count; i++) free((char *)talk->messages[i].content);
  free(talk->messages);
}

/* Evaluates the messages that are not in the session yet, or counts them. */
static int take_messages(prompt_sink *sink, conversation *talk) {
  run_state *run = sink->run;
  size_t count = 0;
  for (;;) {
    if (still_format_chat(run->tokenizer, talk->messages, talk->count, talk->evaluated, 1, run->ids,
                          run->id_capacity, &count))
      return program_failure("chat");
    if (count <= run->id_capacity) break;
    if (run_reserve(run, count)) return PROGRAM_FAILED;
  }
  talk->evaluated = talk->count;
  sink->counted += (int64_t)count;
  return sink->count_only ? PROGRAM_DONE : run_evaluate(run, count);
}

/* File and prompt as one text, for a message. */
static int gather_prompt(run_text *text) {
  program_input input;
  const char *piece;
  size_t bytes;
  int code = PROGRAM_DONE;
  if (arguments.file) {
    if (program_input_open(&input, arguments.file)) return PROGRAM_FAILED;
    while (!(code = program_input_next(&input, &piece, &bytes)) && bytes)
      if ((code = run_append(text, piece, bytes))) break;
    program_input_close(&input);
    if (!code && arguments.prompt) code = run_append(text, "\n", 1);
  }
  const char *prompt = arguments.prompt ? arguments.prompt : "";
  return code ? code : run_append(text, prompt, strlen(prompt));
}

/* The answer is complete before anything else is said about it, in a pipe of both too. */
static void end_line(void) {
  putchar('\n');
  fflush(stdout);
}

/* One turn: the new messages in, the answer out and into the conversation. */
static int answer_turn(prompt_sink *sink, conversation *talk) {
  run_state *run = sink->run;
  if (take_messages(sink, talk) || run_answer(run)) return PROGRAM_FAILED;
  if (add_message(talk, "assistant", run->answer.data ? run->answer.data : ""))
    return PROGRAM_FAILED;
  talk->evaluated = talk->count;
  if (!arguments.json) end_line();
  /* An answer that was cut still needs its end, before the next message. */
  still_token end = still_tokenizer_eos(run->tokenizer);
  if (strcmp(run->end, "end") && end >= 0 && !arguments.single_turn)
    still_session_evaluate(run->session, &end, 1, NULL, NULL);
  return PROGRAM_DONE;
}

/* Reads a line of any length from stdin; 0 at the end of input or after Ctrl-C. */
static int read_line(run_text *line) {
  char part[4096];
  line->bytes = 0;
  if (isatty(STDIN_FILENO))
    fprintf(stderr, "%s> %s", program_colour("\033[1;32m"), program_colour("\033[0m"));
  while (fgets(part, sizeof part, stdin)) {
    size_t bytes = strlen(part);
    int complete = bytes && part[bytes - 1] == '\n';
    if (run_append(line, part, bytes - (size_t)complete)) return 0;
    if (complete) return 1;
  }
  return line->bytes > 0;
}

static int talk_on(prompt_sink *sink, conversation *talk) {
  run_text line = {NULL, 0, 0};
  int code = PROGRAM_DONE;
  program_forget_interrupts();
  while (!code && read_line(&line)) {
    if (!line.bytes) continue;
    code = add_message(talk, "user", line.data);
    if (!code) code = answer_turn(sink, talk);
    program_forget_interrupts();
  }
  free(line.data);
  return code;
}

static int converse(prompt_sink *sink, int has_prompt, int interactive) {
  conversation talk = {NULL, 0, 0, 0};
  run_text text = {NULL, 0, 0};
  int code = PROGRAM_DONE;
  if (!sink->count_only && still_session_position(sink->run->session)) {
    /* A loaded conversation: two messages stand for it, so that it is not begun again. */
    code = add_message(&talk, "user", "") || add_message(&talk, "assistant", "");
    talk.evaluated = talk.count;
  } else if (arguments.system) {
    code = add_message(&talk, "system", arguments.system);
  }
  if (!code && has_prompt) {
    code = gather_prompt(&text);
    if (!code) code = add_message(&talk, "user", text.data);
    if (!code) code = sink->count_only ? take_messages(sink, &talk) : answer_turn(sink, &talk);
  }
  if (!code && interactive && !sink->count_only) code = talk_on(sink, &talk);
  free(text.data);
  end_conversation(&talk);
  return code;
}

/* ---- the program ----------------------------------------------------------------------------------- */

int run_session_options(const run_state *run, still_session_options *options) {
  *options = program_session_options();
  options->history = !arguments.saliency; /* only that page shows the tokens */
  return program_fit_session(run->model, options);
}

static int open_run(run_state *run) {
  double start = program_seconds();
  if (program_model_open(&run->model)) return PROGRAM_FAILED;
  run->load_seconds = program_seconds() - start;
  still_model_info info;
  still_model_get_info(run->model, &info);
  run->vocabulary = (size_t)info.vocabulary;
  run->tokenizer = still_model_tokenizer(run->model);
  if (!run->tokenizer) {
    program_complain("%s holds no vocabulary", program_model_path());
    return PROGRAM_FAILED;
  }
  if (arguments.dry_run) return PROGRAM_DONE;
  still_session_options options;
  int code = run_session_options(run, &options);
  if (code) return code;
  still_status status = still_session_create(&run->session, run->model, &options);
  if (status) return program_refusal(status, NULL);
  if (arguments.saliency && run_saliency_begin(run)) return PROGRAM_FAILED;
  if (arguments.state_load && still_session_load(run->session, arguments.state_load, NULL, NULL))
    return program_failure("--state-load");
  still_sampler_options chance = STILL_SAMPLER_OPTIONS_INIT;
  chance.temperature = arguments.temperature;
  chance.top_k = arguments.top_k;
  chance.top_p = arguments.top_p;
  chance.min_p = arguments.min_p;
  chance.repeat_penalty = arguments.repeat_penalty;
  chance.repeat_last = arguments.repeat_last;
  chance.seed = arguments.seed;
  if (still_sampler_create(&run->sampler, &chance)) return program_failure("sampler");
  return still_decoder_create(&run->decoder, run->tokenizer) ? program_failure("decoder")
                                                             : PROGRAM_DONE;
}

static void close_run(run_state *run) {
  still_decoder_destroy(run->decoder);
  still_sampler_destroy(run->sampler);
  still_mechanism_destroy(run->mechanism);
  still_session_destroy(run->session);
  still_model_destroy(run->model);
  free(run->ids);
  free(run->answer.data);
}

/* Everything after the answer. */
static int finish(const run_state *run) {
  int code = PROGRAM_DONE;
  if (arguments.json)
    run_json(run);
  else
    run_summary(run);
  if (arguments.saliency) code = run_saliency(run, arguments.saliency);
  if (!code && arguments.state_save &&
      still_session_save(run->session, arguments.state_save, NULL, NULL))
    code = program_failure("--state-save");
  return code;
}

/* What is wrong with the flags whatever the model is. */
static int check_arguments(void) {
  if (arguments.conversation && arguments.no_conversation) {
    program_complain("-cnv and -no-cnv contradict each other");
    return PROGRAM_USAGE;
  }
  if (arguments.saliency && arguments.state_load) {
    program_complain(
        "--saliency and --state-load contradict each other: the page shows a text that is read");
    return PROGRAM_USAGE;
  }
  if (arguments.system && arguments.no_conversation) {
    program_complain("-sys and -no-cnv contradict each other: plain text has no system message");
    return PROGRAM_USAGE;
  }
  return PROGRAM_DONE;
}

/* Said before a long text is read, not after it. */
static int check_output(const char *flag, const char *path) {
  if (!path) return PROGRAM_DONE;
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
  if (!access(path, W_OK) || !access(folder, W_OK)) return PROGRAM_DONE;
  program_complain("%s %s: cannot write there: %s", flag, path, strerror(errno));
  return PROGRAM_FAILED;
}

static int run_program(run_state *run) {
  if (check_output("--state-save", arguments.state_save) ||
      check_output("--saliency", arguments.saliency))
    return PROGRAM_FAILED;
  int terminal = isatty(STDIN_FILENO);
  if (!arguments.prompt && !arguments.file && !terminal && !arguments.conversation)
    arguments.file = "-";
  int has_prompt = arguments.prompt || arguments.file;
  int code = open_run(run);
  if (code) return code;
  int chat = !arguments.no_conversation && still_tokenizer_chat_family(run->tokenizer);
  if (arguments.conversation && !still_tokenizer_chat_family(run->tokenizer)) {
    program_complain("-cnv: this model has no chat template to talk with");
    return PROGRAM_USAGE;
  }
  int interactive = !arguments.single_turn && (arguments.conversation || (!has_prompt && terminal));
  if (arguments.system && !chat) {
    program_complain("-sys: this model has no chat template for a system message");
    return PROGRAM_USAGE;
  }
  prompt_sink sink = {run, 0, 0, arguments.dry_run};
  if (!has_prompt && !arguments.dry_run && !arguments.state_load && !(chat && interactive)) {
    program_complain("nothing to answer: give -p TEXT or -f FILE%s",
                     chat ? "" : " (plain text is continued, not talked with)");
    return PROGRAM_USAGE;
  }
  if (chat)
    code = converse(&sink, has_prompt, interactive);
  else if (has_prompt)
    code = take_plain_prompt(&sink);
  if (arguments.dry_run) {
    int64_t known = has_prompt && arguments.predict >= 0 ? sink.counted + arguments.predict : 0;
    return code ? code : run_dry(run, known);
  }
  if (!code && !chat) {
    code = run_answer(run);
    if (!arguments.json && run->answer.bytes) end_line();
  }
  if (!code) return finish(run);
  if (program_interrupted() && !chat) { /* what was read is not lost: --state-save */
    run->end = "interrupted";
    program_complain("interrupted after %lld tokens of the text",
                     (long long)still_session_position(run->session));
    finish(run);
  }
  return code;
}

static int start(int argc, char **argv) {
  program_begin("still-run");
  int code = program_parse(flags, argc, argv);
  if (!code) code = program_model_check();
  if (!code) code = program_check_kinds();
  if (!code) code = check_arguments();
  if (code) return code;
  if (arguments.help) {
    program_help(
        flags, "still-run answers from a text of any length with a language model.",
        "still-run [-m MODEL] [-f FILE] [-p TEXT] [flags]",
        "  still-run -p \"The town\" -n 20\n"
        "  still-run -m model.gguf -cnv\n"
        "  still-run -m model.gguf -f book.txt -p \"Who did it?\" --attn still --budget 1024\n"
        "  still-run -m model.gguf -f book.txt -n 0 --attn still --state-save book.still\n"
        "  still-run -m model.gguf --state-load book.still --attn still -p \"Who did it?\"\n");
    return PROGRAM_DONE;
  }
  if (arguments.version) {
    printf("still-run %s, kernels %s\n", still_version(), still_cpu_level());
    return PROGRAM_DONE;
  }
  program_terminal_begin(arguments.quiet ? -1 : arguments.verbose);
  if (arguments.list_devices) return program_list_devices();
  program_catch_interrupts();
  run_state run = {0};
  code = run_program(&run);
  close_run(&run);
  return code;
}

int main(int argc, char **argv) {
  return program_end(start(argc, argv));
}

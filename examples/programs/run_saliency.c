/* SPDX-License-Identifier: MIT
 * still-run --saliency: a page that shows the text, every token as dark as its routing score. */
#include "program_arguments.h"
#include "program_json.h"
#include "program_model.h"
#include "program_terminal.h"
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct saliency_page {
  FILE *file;
  const run_state *run;
  still_model_info info;
  int64_t first, tokens; /* recorded: first .. first + tokens - 1 */
  float *shade;          /* of each recorded token, 0 .. 1: rank of its mean score over the heads */
  int *kept;             /* heads that keep it */
  char begun[4];         /* of a character that goes on in the next token */
  size_t begun_bytes;
  int keeps; /* anything, in any layer */
} saliency_page;

/* Are these bytes the beginning of a character that needs more of them? */
static int is_begun(const char *text, size_t bytes) {
  unsigned char first = (unsigned char)*text;
  size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
  for (size_t i = 1; i < bytes; i++)
    if (((unsigned char)text[i] & 0xc0) != 0x80) return 0;
  return bytes < length && first <= 0xf4;
}

static void write_character(FILE *file, const char *text, size_t bytes) {
  unsigned char c = (unsigned char)*text;
  if (c == '<' || c == '>' || c == '&' || c == '"')
    fprintf(file, "&#%d;", c);
  else if (!bytes || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
    fputs("\uFFFD", file);
  else
    fwrite(text, 1, bytes, file);
}

/* A character of several tokens is shown with the last of them. */
static void write_escaped(saliency_page *page, const char *text, size_t bytes) {
  page->begun_bytes = 0;
  for (size_t i = 0; i < bytes;) {
    size_t length = program_utf8_length(text + i, bytes - i);
    if (!length && is_begun(text + i, bytes - i)) {
      page->begun_bytes = bytes - i;
      memcpy(page->begun, text + i, bytes - i);
      return;
    }
    write_character(page->file, text + i, length);
    i += length ? length : 1;
  }
}

static int compare_floats(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Mean over the heads, then the rank among all tokens: scores span many powers of ten. */
static int shade_tokens(saliency_page *page, const float *scores) {
  size_t count = (size_t)page->tokens;
  float *sorted = malloc((count + !count) * sizeof *sorted);
  if (!sorted) return 0;
  for (size_t t = 0; t < count; t++) {
    double sum = 0;
    for (int h = 0; h < page->info.heads; h++) sum += scores[(size_t)h * count + t];
    sorted[t] = page->shade[t] = (float)(sum / page->info.heads);
  }
  qsort(sorted, count, sizeof *sorted, compare_floats);
  for (size_t t = 0; t < count; t++) {
    size_t low = 0, high = count;
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (sorted[middle] < page->shade[t])
        low = middle + 1;
      else
        high = middle;
    }
    page->shade[t] = (float)low / (float)count;
  }
  free(sorted);
  return 1;
}

static int count_kept(saliency_page *page, int layer) {
  memset(page->kept, 0, (size_t)page->tokens * sizeof *page->kept);
  for (int h = 0; h < page->info.heads; h++) {
    size_t count = still_session_kept(page->run->session, layer, h, NULL, 0);
    int64_t *positions = malloc((count + !count) * sizeof *positions);
    if (!positions) return 0;
    still_session_kept(page->run->session, layer, h, positions, count);
    for (size_t i = 0; i < count; i++)
      if (positions[i] >= page->first && positions[i] < page->first + page->tokens)
        page->kept[positions[i] - page->first]++;
    free(positions);
  }
  return 1;
}

static void write_token(saliency_page *page, int64_t t) {
  char text[512];
  still_token id = still_session_tokens(page->run->session)[page->first + t];
  const size_t begun = page->begun_bytes, room = sizeof text - begun;
  memcpy(text, page->begun, begun);
  size_t bytes = still_token_text(page->run->tokenizer, id, 1, text + begun, room);
  page->keeps |= page->kept[t] > 0;
  int alpha = (int)lrintf(85 * page->shade[t] * page->shade[t] * page->shade[t]);
  fprintf(page->file,
          "<i style=\"background:rgba(230,90,20,.%02d)\"%s title=\"%lld: kept by %d of %d heads\">",
          alpha, page->kept[t] ? " class=k" : "", (long long)(page->first + t), page->kept[t],
          page->info.heads);
  write_escaped(page, text, begun + (bytes < room ? bytes : room));
  fputs("</i>", page->file);
}

/* Layers without routing have no scores: they are named, not drawn. */
static int write_layer(saliency_page *page, int layer) {
  const float *scores = NULL;
  if (still_session_scores(page->run->session, layer, &scores, &page->first, &page->tokens) ||
      !scores || !page->tokens) {
    fprintf(page->file, "<details><summary>layer %d: no routing</summary></details>\n", layer);
    return 1;
  }
  size_t count = (size_t)page->tokens;
  page->shade = malloc(count * sizeof *page->shade);
  page->kept = malloc(count * sizeof *page->kept);
  int done = page->shade && page->kept && shade_tokens(page, scores) && count_kept(page, layer);
  if (done) {
    page->begun_bytes = 0;
    fprintf(page->file, "<details%s><summary>layer %d</summary><pre>", layer ? "" : " open", layer);
    for (int64_t t = 0; t < page->tokens; t++) write_token(page, t);
    fputs("</pre></details>\n", page->file);
  }
  free(page->shade);
  free(page->kept);
  return done;
}

int run_saliency(const run_state *run, const char *path) {
  saliency_page page = {.file = fopen(path, "w"), .run = run};
  if (!page.file) {
    program_complain("--saliency %s: %s", path, strerror(errno));
    return PROGRAM_FAILED;
  }
  still_model_get_info(run->model, &page.info);
  fputs("<!doctype html><meta charset=utf-8><title>saliency</title>\n"
        "<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto}"
        "pre{white-space:pre-wrap;font:15px/1.6 serif}i{font-style:normal}"
        ".k{border-bottom:2px solid #06c}</style>\n"
        "<h1>What STILL keeps</h1>\n<p>The darker a token, the higher its routing score among all "
        "tokens of the layer (mean of the heads). Underlined: kept for exact attention by at least "
        "one head; the tooltip says by how many.\n",
        page.file);
  int done = 1;
  for (int layer = 0; done && layer < page.info.layers; layer++) done = write_layer(&page, layer);
  int written = !ferror(page.file);
  written &= !fclose(page.file);
  if (done && written && !page.keeps && !program_quiet())
    program_complain("--saliency %s: nothing is kept: --attn still keeps, in a text of some chunks",
                     path);
  if (done && written) return PROGRAM_DONE;
  program_complain("--saliency %s: %s", path, done ? strerror(errno) : "no memory");
  return PROGRAM_FAILED;
}

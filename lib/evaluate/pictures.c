/* SPDX-License-Identifier: MIT
 * Pictures of a report: SVG that stands alone, for light and dark pages. Runs differ by colour
 * (Okabe and Ito's, which the colour-blind can tell apart, darker on light and lighter on dark),
 * dashes and marks; cells of heat maps say their number, too. */
#include "base/files.h"
#include "tokenizer/utf8.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <still/evaluate.h>
#include <string.h>

enum {
  COLUMNS = 3,
  PANEL_WIDTH = 330,
  PANEL_HEIGHT = 250,
  LEAST_WIDTH = 450, /* what the headings take */
  LINE = 20,
  NAME_CHARACTERS = 38, /* of a name, in a panel's width */
};

/* The cells of a report lie as a grid: lengths, within them runs, within them tasks, within them depths. */
typedef struct axes {
  const still_evaluation_cell *cells;
  int run_count, task_count, length_count;
  int depth_count;            /* 0: no grid of depths */
  int shortest;               /* length above 0 */
  double low_step, high_step; /* the ends of step_of */
} axes;

static const still_evaluation_cell *cell_at(const axes *a, int run, int task, int length,
                                            int depth) {
  const size_t depths = a->depth_count ? (size_t)a->depth_count : 1;
  const size_t place =
      ((size_t)length * (size_t)a->run_count + (size_t)run) * (size_t)a->task_count;
  return &a->cells[(place + (size_t)task) * depths + (size_t)depth];
}

static int length_of(const axes *a, int length) {
  return cell_at(a, 0, 0, length, 0)->length;
}

/* Lengths stand by their logarithms; 0 a step before the shortest of the others. */
static double step_of(const axes *a, int length) {
  const int tokens = length_of(a, length);
  return tokens ? log2(tokens) : log2(a->shortest) - 1;
}

static void find_steps(axes *a) {
  a->shortest = INT_MAX;
  for (int l = 0; l < a->length_count; l++)
    if (length_of(a, l) && length_of(a, l) < a->shortest) a->shortest = length_of(a, l);
  a->low_step = INFINITY, a->high_step = -INFINITY;
  for (int l = 0; l < a->length_count; l++) {
    a->low_step = fmin(a->low_step, step_of(a, l));
    a->high_step = fmax(a->high_step, step_of(a, l));
  }
}

static axes find_axes(const still_evaluation_report *report) {
  axes a = {.cells = NULL};
  size_t count, depths = 0, tasks = 0, runs = 0; /* in cells */
  const still_evaluation_cell *c = a.cells = still_evaluation_report_cells(report, &count);
  while (runs < count && c[runs].length == c->length) runs++;
  while (tasks < runs && c[tasks].run == c->run) tasks++;
  while (depths < tasks && c[depths].task == c->task) depths++;
  a.length_count = (int)(count / runs), a.run_count = (int)(runs / tasks);
  a.task_count = (int)(tasks / depths), a.depth_count = c->depth < 0 ? 0 : (int)depths;
  find_steps(&a);
  return a;
}

/* The cells of a place together: all depths, or (depth >= 0) the one of that number. */
static still_evaluation_cell at(const axes *a, int run, int task, int length, int depth) {
  still_evaluation_cell sum = {.low = 0, .high = 1};
  const int first = depth < 0 ? 0 : depth, end = depth < 0 ? a->depth_count : depth + 1;
  for (int d = first; d == first || d < end; d++) {
    const still_evaluation_cell *c = cell_at(a, run, task, length, d);
    sum.count += c->count;
    sum.right += c->right;
  }
  still_wilson_interval(sum.right, sum.count, &sum.low, &sum.high);
  return sum;
}

/* ---- SVG */

/* Names come from anywhere: what XML does not allow becomes U+FFFD, and what is longer than `most` characters is cut. */
static void put_escaped(FILE *out, const char *text, int most) {
  size_t left = strlen(text), length;
  for (; left && most > 0; text += length, left -= length, most--) {
    const bool valid = still_utf8_scan(text, left, &length) == STILL_UTF8_VALID;
    const uint32_t code = valid ? still_utf8_decode(text, length) : 0;
    if (code < 0x20 || code == 0xfffe || code == 0xffff)
      fputs("\xef\xbf\xbd", out);
    else if (code < 0x7f && strchr("<>&\"", (int)code))
      fprintf(out, "&#%u;", (unsigned)code);
    else
      fwrite(text, 1, length, out);
  }
  if (left) fputs("\xe2\x80\xa6", out); /* ... */
}

static void put_text(FILE *out, double x, double y, const char *class, const char *text) {
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
  put_escaped(out, text, INT_MAX);
  fputs("</text>\n", out);
}

static void put_name(FILE *out, double x, double y, const char *class, const char *name) {
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
  put_escaped(out, name, NAME_CHARACTERS);
  fputs("</text>\n", out);
}

static void begin_svg(FILE *out, double width, double height, const char *title) {
  width = fmax(width, LEAST_WIDTH);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
          "height=\"%.0f\" role=\"img\" font-family=\"sans-serif\" font-size=\"11\">\n<title>",
          width, height, width, height);
  put_escaped(out, title, INT_MAX);
  fputs(
      "</title>\n<style>svg{background:#fff;--ink:#222;--faint:#ccc;--c0:#0072b2;--c1:#d55e00;"
      "--c2:#008a63;--c3:#b0508a;--c4:#b07800;--c5:#3ea0dc;--c6:#767676;--c7:#222}\n"
      "@media(prefers-color-scheme:dark){svg{background:#181818;--ink:#ddd;--faint:#444;"
      "--c0:#4aa3df;--c1:#f0803c;--c2:#2dbf92;--c3:#dd8fbc;--c4:#e6b422;--c5:#a5d8f7;--c6:#9a9a9a;"
      "--c7:#ddd}}\n"
      "text{fill:var(--ink)}.m{text-anchor:middle}.e{text-anchor:end}.h{font-weight:bold}"
      ".g{stroke:var(--faint)}.d{fill:#000}.l{fill:#fff}</style>\n",
      out);
}

/* ---- accuracy over length */

static const char *const dashes[] = {"", "7 3", "2 2", "9 3 2 3", "4 4", "1 3", "12 4", "5 2 1 2"};
enum { STYLES = sizeof dashes / sizeof *dashes }; /* and colours: --c0 .. */

static void put_mark(FILE *out, int run, double x, double y) {
  fprintf(out, "<path style=\"fill:var(--c%d)\" d=\"M%.1f %.1f", run % STYLES, x, y);
  switch (run % 4) {
  case 0: fputs("m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", out); break; /* a disc */
  case 1: fputs("m-3 -3h6v6h-6z", out); break;
  case 2: fputs("m0 -4l4 7h-8z", out); break;
  default: fputs("m0 -4l4 4l-4 4l-4 -4z", out);
  }
  fputs("\"/>\n", out);
}

typedef struct frame {
  double left, top, width, height;
} frame;

/* Runs stand a little apart, so that their marks and intervals do not cover each other. */
static double aside(const axes *a, int run) {
  const double step = a->run_count > 10 ? 30.0 / a->run_count : 3;
  return step * (run - (a->run_count - 1) / 2.0);
}

/* Where a run's value at a length stands, or the length's name (run -1). */
static double x_of(const axes *a, const frame *f, int run, int length) {
  const double span = a->high_step - a->low_step;
  const double share = span > 0 ? (step_of(a, length) - a->low_step) / span : 0.5;
  const double border = 4 - aside(a, 0);
  return f->left + border + share * (f->width - 2 * border) + (run < 0 ? 0 : aside(a, run));
}

static void put_line(FILE *out, const axes *a, const frame *f, int run, int task) {
  bool begun = false;
  fprintf(out,
          "<g style=\"stroke:var(--c%d)\" fill=\"none\" stroke-width=\"1.6\"><path "
          "stroke-dasharray=\"%s\" d=\"",
          run % STYLES, dashes[run % STYLES]);
  for (int l = 0; l < a->length_count; l++) {
    const still_evaluation_cell c = at(a, run, task, l, -1);
    if (!c.count) continue;
    fprintf(out, "%c%.1f %.1f", begun ? 'L' : 'M', x_of(a, f, run, l),
            f->top + f->height * (1 - c.right / (double)c.count));
    begun = true;
  }
  fputs("\"/>", out);
  for (int l = 0; l < a->length_count; l++) {
    const still_evaluation_cell c = at(a, run, task, l, -1);
    if (c.count)
      fprintf(out, "<path stroke-width=\"1\" d=\"M%.1f %.1fV%.1f\"/>", x_of(a, f, run, l),
              f->top + f->height * (1 - c.low), f->top + f->height * (1 - c.high));
  }
  fputs("</g>\n", out);
  for (int l = 0; l < a->length_count; l++) {
    const still_evaluation_cell c = at(a, run, task, l, -1);
    if (c.count)
      put_mark(out, run, x_of(a, f, run, l), f->top + f->height * (1 - c.right / (double)c.count));
  }
}

static void put_panel(FILE *out, const axes *a, const frame *f, int task) {
  char text[32];
  put_name(out, f->left, f->top - 8, "h", cell_at(a, 0, task, 0, 0)->task);
  for (int percent = 0; percent <= 100; percent += 25) {
    const double y = f->top + f->height * (1 - percent / 100.0);
    fprintf(out, "<path class=\"g\" d=\"M%.1f %.1fh%.1f\"/>\n", f->left, y, f->width);
    snprintf(text, sizeof text, "%d", percent);
    put_text(out, f->left - 5, y + 4, "e", text);
  }
  for (int l = 0; l < a->length_count; l++) {
    snprintf(text, sizeof text, "%d", length_of(a, l));
    put_text(out, x_of(a, f, -1, l), f->top + f->height + 15, "m", text);
  }
  for (int run = 0; run < a->run_count; run++) put_line(out, a, f, run, task);
}

static int columns_of(int panels) {
  return panels < COLUMNS ? panels : COLUMNS;
}

static void put_legend(FILE *out, const axes *a, int columns, double top) {
  for (int run = 0; run < a->run_count; run++) {
    const double x = 20 + run % columns * PANEL_WIDTH, y = top + run / columns * LINE;
    fprintf(out,
            "<path d=\"M%.0f %.1fh36\" style=\"stroke:var(--c%d)\" stroke-width=\"1.6\" "
            "stroke-dasharray=\"%s\"/>\n",
            x, y, run % STYLES, dashes[run % STYLES]);
    put_mark(out, run, x + 18, y);
    put_name(out, x + 44, y + 4, "", cell_at(a, run, 0, 0, 0)->run);
  }
}

static void draw_lengths(FILE *out, const axes *a) {
  const int columns = columns_of(a->task_count), rows = (a->task_count + columns - 1) / columns;
  const double head = 40 + LINE * ((a->run_count + columns - 1) / columns);
  begin_svg(out, columns * PANEL_WIDTH, head + rows * PANEL_HEIGHT, "Accuracy over length");
  put_text(out, 20, 22, "h", "Right answers in percent over tokens, with 95 % intervals");
  put_legend(out, a, columns, 42);
  for (int task = 0; task < a->task_count; task++) {
    const frame f = {40 + task % columns * PANEL_WIDTH, head + 30 + task / columns * PANEL_HEIGHT,
                     PANEL_WIDTH - 60, PANEL_HEIGHT - 65};
    put_panel(out, a, &f, task);
  }
  fputs("</svg>\n", out);
}

/* ---- depth and length */

/* Five points of a scale whose lightness rises evenly (viridis). */
static void put_colour(FILE *out, double share) {
  static const int points[5][3] = {
      {68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
  const int low = share < 1 ? (int)(share * 4) : 3;
  const double part = share * 4 - low;
  fprintf(out, "rgb(");
  for (int i = 0; i < 3; i++)
    fprintf(out, "%s%.0f", i ? "," : "",
            points[low][i] + part * (points[low + 1][i] - points[low][i]));
  fprintf(out, ")");
}

static void put_map(FILE *out, const axes *a, const frame *f, int run, int task) {
  const double width = f->width / a->length_count, height = f->height / a->depth_count;
  char text[64];
  for (int l = 0; l < a->length_count; l++) {
    for (int d = 0; d < a->depth_count; d++) {
      const still_evaluation_cell c = at(a, run, task, l, d);
      if (!c.count) continue;
      const double share = c.right / (double)c.count;
      const double x = f->left + l * width, y = f->top + d * height;
      fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"", x, y,
              width - 1, height - 1);
      put_colour(out, share);
      fputs("\"/>\n", out);
      snprintf(text, sizeof text, "%.0f", 100 * share);
      put_text(out, x + width / 2, y + height / 2 + 4, share > 0.42 ? "m d" : "m l", text);
    }
    snprintf(text, sizeof text, "%d", length_of(a, l));
    put_text(out, f->left + (l + 0.5) * width, f->top + f->height + 14, "m", text);
  }
  for (int d = 0; d < a->depth_count; d++) {
    snprintf(text, sizeof text, "%.0f %%", 100.0 * d / (a->depth_count - 1));
    put_text(out, f->left - 5, f->top + (d + 0.5) * height + 4, "e", text);
  }
  const still_evaluation_cell *first = cell_at(a, run, task, 0, 0);
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"h\">", f->left, f->top - 8);
  put_escaped(out, first->run, NAME_CHARACTERS - 15);
  fputs(", ", out);
  put_escaped(out, first->task, 14);
  fputs("</text>\n", out);
}

static void draw_depths(FILE *out, const axes *a) {
  const int panels = a->run_count * a->task_count;
  const int columns = columns_of(a->task_count > 1 ? a->task_count : panels);
  const double height = 70 + LINE * a->depth_count;
  begin_svg(out, columns * PANEL_WIDTH, 30 + (panels + columns - 1) / columns * height,
            "Accuracy by depth and length");
  put_text(out, 20, 22, "h", "Right answers in percent: depth of the needle down, tokens across");
  for (int i = 0; i < panels; i++) {
    const frame f = {50 + i % columns * PANEL_WIDTH, 60 + i / columns * height, PANEL_WIDTH - 70,
                     LINE * a->depth_count};
    put_map(out, a, &f, i / a->task_count, i % a->task_count);
  }
  fputs("</svg>\n", out);
}

still_status still_evaluation_report_draw(const still_evaluation_report *report,
                                          still_evaluation_picture picture, const char *path) {
  still_output output;
  if (picture != STILL_PICTURE_LENGTHS && picture != STILL_PICTURE_DEPTHS)
    return still_fail(STILL_ERROR_ARGUMENT, "picture %d, must be 0 or 1", (int)picture);
  const axes a = find_axes(report);
  if (picture == STILL_PICTURE_DEPTHS && !a.depth_count)
    return still_fail(STILL_ERROR_ARGUMENT, "a picture of depths needs a grid of depths");
  STILL_TRY(still_output_open(&output, path));
  if (picture == STILL_PICTURE_LENGTHS)
    draw_lengths(output.stream, &a);
  else
    draw_depths(output.stream, &a);
  return still_output_commit(&output);
}

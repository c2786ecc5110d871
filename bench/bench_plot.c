/* SPDX-License-Identifier: MIT
 * Lines over tokens as SVG, for light and dark pages. Kinds differ by colour (which the colour-blind can
 * tell apart), dashes and the name at the line's end. */
#include "bench.h"

#include <math.h>

enum { WIDTH = 420, HEIGHT = 300, LEFT = 62, TOP = 34, RIGHT = 84, BOTTOM = 40 };

typedef struct frame {
  double x0, x1, y0, y1; /* logarithms of the ends */
  double left;           /* of the panel, in pixels */
} frame;

enum { COLOURS = 7 }; /* --c0 .. */
static const char *const dashes[COLOURS] = {"", "7 3", "2 2", "9 3 2 3", "4 4", "1 3", "12 4"};

static double place_x(const frame *f, double x) {
  return f->left + LEFT + (log2(x) - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const frame *f, double y) {
  return TOP + (f->y1 - log10(y)) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static frame frame_of(const bench_panel *p, double left) {
  frame f = {INFINITY, -INFINITY, INFINITY, -INFINITY, left};
  for (int l = 0; l < p->count; l++)
    for (int i = 0; i < p->lines[l].count; i++) {
      f.x0 = fmin(f.x0, log2(p->lines[l].x[i]));
      f.x1 = fmax(f.x1, log2(p->lines[l].x[i]));
      f.y0 = fmin(f.y0, log10(p->lines[l].y[i]));
      f.y1 = fmax(f.y1, log10(p->lines[l].y[i]));
    }
  f.y0 = floor(f.y0);
  f.y1 = ceil(f.y1);
  if (f.y1 <= f.y0) f.y1 = f.y0 + 1;
  if (f.x1 <= f.x0) f.x1 = f.x0 + 1;
  return f;
}

static void draw_axes(FILE *out, const frame *f, const bench_panel *p) {
  fprintf(out, "<text x=\"%g\" y=\"20\" font-weight=\"bold\">%s, %s</text>\n", f->left + LEFT,
          p->title, p->unit);
  for (double e = f->y0; e <= f->y1; e++) {
    const double y = place_y(f, pow(10, e));
    fprintf(out,
            "<path d=\"M%g %.1fH%d\" stroke=\"#888\" stroke-opacity=\".3\"/>"
            "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
            f->left + LEFT, y, (int)f->left + WIDTH - RIGHT, f->left + LEFT - 6, y + 4, pow(10, e));
  }
  for (double e = ceil(f->x0); e <= f->x1; e++) {
    const double x = place_x(f, exp2(e));
    if (e >= 10)
      fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%gK</text>\n", x,
              HEIGHT - BOTTOM + 18, exp2(e - 10));
    else
      fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x,
              HEIGHT - BOTTOM + 18, exp2(e));
  }
  fprintf(out, "<text x=\"%g\" y=\"%d\" text-anchor=\"middle\">tokens</text>\n",
          f->left + (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6);
}

static void draw_line(FILE *out, const frame *f, const bench_line *line, int colour) {
  fprintf(out,
          "<polyline fill=\"none\" style=\"stroke:var(--c%d)\" stroke-width=\"2\" "
          "stroke-dasharray=\"%s\" points=\"",
          colour, dashes[colour]);
  for (int i = 0; i < line->count; i++)
    fprintf(out, "%.1f,%.1f ", place_x(f, line->x[i]), place_y(f, line->y[i]));
  fprintf(out, "\"/>\n");
  for (int i = 0; i < line->count; i++)
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" style=\"fill:var(--c%d)\"/>",
            place_x(f, line->x[i]), place_y(f, line->y[i]), colour);
}

static double last_of(const bench_line *line) {
  return line->y[line->count - 1];
}

/* Names at the lines' ends, from the top down, pushed apart where they would overlap. */
static void draw_names(FILE *out, const frame *f, const bench_panel *p) {
  bool named[BENCH_MOST_VALUES] = {false};
  double above = -INFINITY;
  for (int n = 0; n < p->count; n++) {
    int top = -1;
    for (int l = 0; l < p->count; l++)
      if (!named[l] && (top < 0 || last_of(&p->lines[l]) > last_of(&p->lines[top]))) top = l;
    const bench_line *line = &p->lines[top];
    const double y = fmax(place_y(f, last_of(line)), above + 12);
    named[top] = true;
    above = y;
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" style=\"fill:var(--c%d)\">%s</text>\n",
            place_x(f, line->x[line->count - 1]) + 7, y + 4, top % COLOURS, line->name);
  }
}

bool bench_plot(const char *path, const bench_panel *panels, int count) {
  FILE *out = fopen(path, "w");
  if (!out) {
    perror(path);
    return false;
  }
  fprintf(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<style>svg{background:#fff;--ink:#222;--c0:#0072b2;--c1:#c25500;--c2:#"
      "007f5b;"
      "--c3:#a8447f;--c4:#8f6200;--c5:#2a7fb8;--c6:#666}\n"
      "@media(prefers-color-scheme:dark){svg{background:#181818;--ink:#ddd;--c0:#4aa3df;--c1:#"
      "f0803c;"
      "--c2:#2dbf92;--c3:#dd8fbc;--c4:#e6b422;--c5:#a5d8f7;--c6:#aaa}}\ntext{fill:var(--ink)}</"
      "style>\n",
      WIDTH * count, HEIGHT);
  for (int i = 0; i < count; i++) {
    const frame f = frame_of(&panels[i], (double)i * WIDTH);
    draw_axes(out, &f, &panels[i]);
    for (int l = 0; l < panels[i].count; l++) draw_line(out, &f, &panels[i].lines[l], l % COLOURS);
    draw_names(out, &f, &panels[i]);
  }
  fprintf(out, "</svg>\n");
  return !fclose(out);
}

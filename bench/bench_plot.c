/* SPDX-License-Identifier: MIT
 * Lines over tokens as SVG. Text and axes take the colour of the page, so that the picture reads on
 * light and on dark. */
#include "bench.h"

#include <math.h>

enum { WIDTH = 420, HEIGHT = 300, LEFT = 62, TOP = 34, RIGHT = 84, BOTTOM = 40 };

typedef struct frame {
  double x0, x1, y0, y1; /* logarithms of the ends */
  double left;           /* of the panel, in pixels */
} frame;

static const char *const colours[] = {"#d1495b", "#2a9d8f", "#4c78d8", "#e09f3e",
                                      "#8e6bbf", "#6b9f3e", "#c96fa8"};

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

/* Names at the lines' ends, pushed apart where they would overlap. */
static void draw_lines(FILE *out, const frame *f, const bench_panel *p) {
  double taken[BENCH_MOST_VALUES];
  for (int l = 0; l < p->count; l++) {
    const bench_line *line = &p->lines[l];
    const char *colour = colours[l % (int)(sizeof colours / sizeof *colours)];
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (int i = 0; i < line->count; i++)
      fprintf(out, "%.1f,%.1f ", place_x(f, line->x[i]), place_y(f, line->y[i]));
    fprintf(out, "\"/>\n");
    for (int i = 0; i < line->count; i++)
      fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>",
              place_x(f, line->x[i]), place_y(f, line->y[i]), colour);
    double y = place_y(f, line->y[line->count - 1]);
    for (int moved = 1; moved;) {
      moved = 0;
      for (int i = 0; i < l; i++)
        if (fabs(taken[i] - y) < 12) y = taken[i] + 12, moved = 1;
    }
    taken[l] = y;
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" style=\"fill:%s\">%s</text>\n",
            place_x(f, line->x[line->count - 1]) + 7, y + 4, colour, line->name);
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
      "font-size=\"12\">\n<style>text{fill:#333}"
      "@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n",
      WIDTH * count, HEIGHT);
  for (int i = 0; i < count; i++) {
    const frame f = frame_of(&panels[i], (double)i * WIDTH);
    draw_axes(out, &f, &panels[i]);
    draw_lines(out, &f, &panels[i]);
  }
  fprintf(out, "</svg>\n");
  return !fclose(out);
}

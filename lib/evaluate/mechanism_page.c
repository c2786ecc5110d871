/* SPDX-License-Identifier: MIT
 * The page of a measured record: the text twice, shaded by what each head scores and by what full
 * attention would come back to. Shades are ranks, since scores span many powers of ten. */
#include "base/files.h"
#include "base/memory.h"
#include "evaluate/mechanism.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { TOP_RANK = 127, KEPT = 128 }; /* of a token's byte */

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<title>What STILL keeps</title>\n"
    "<style>\n"
    ":root{color-scheme:light dark;--page:#fff;--ink:#1a1a1a;--quiet:#595959;--line:#bbb;"
    "--shade:230,159,0}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#161616;--ink:#ececec;--quiet:#a8a8a8;"
    "--line:#555;--shade:0,124,196}}\n"
    "body{background:var(--page);color:var(--ink);font:16px/1.5 sans-serif;max-width:84em;"
    "margin:1.5em auto;padding:0 1em}\n"
    "h1{font-size:1.4em;margin:0}h2{font-size:1.05em;margin:.2em 0}\n"
    "p{margin:.4em 0;max-width:60em}.quiet{color:var(--quiet)}\n"
    "#bar{position:sticky;top:0;background:var(--page);border-bottom:1px solid var(--line);"
    "padding:.5em 0;display:flex;flex-wrap:wrap;gap:.4em 1.4em;align-items:center}\n"
    "#about{flex-basis:100%;min-height:1.5em}select,input{font:inherit}\n"
    "#panes{display:grid;grid-template-columns:1fr 1fr;gap:2em}\n"
    "@media(max-width:50em){#panes{grid-template-columns:1fr}}\n"
    ".text{white-space:pre-wrap;overflow-wrap:anywhere;font:15px/1.75 serif}\n"
    ".text span{background:rgba(var(--shade),var(--a,0));border-bottom:3px solid transparent}\n"
    ".text .k{border-bottom-color:currentColor}.text .near{color:var(--quiet)}\n"
    ".text .here{outline:2px solid var(--ink)}.only span:not(.k){color:var(--quiet);opacity:.45}\n"
    ".swatch{display:inline-block;width:9em;height:1em;vertical-align:-.15em;"
    "background:linear-gradient(90deg,rgba(var(--shade),0),rgba(var(--shade),.11) 50%,"
    "rgba(var(--shade),.36) 75%,rgba(var(--shade),.85));outline:1px solid var(--line)}\n"
    "u.k{text-decoration:none;border-bottom:3px solid}\n"
    "</style></head><body>\n"
    "<h1>What STILL keeps</h1>\n"
    "<p>Left, what the model decides by: a token's routing score, made from the tokens just before "
    "it. Right, what that should foresee: the attention that the token would receive from the "
    "rest of the text under full attention.</p>\n"
    "<p class=\"quiet\">Shade: lower than most <span class=\"swatch\"></span> higher than all. "
    "<u class=\"k\">Underlined</u>: kept for exact attention. Grey text: still in the window, not "
    "decided.</p>\n"
    "<div id=\"bar\"><label>Layer <select id=\"layer\"></select></label>"
    "<label>Head <select id=\"head\"></select></label>"
    "<label><input type=\"checkbox\" id=\"only\"> kept tokens only</label>"
    "<span id=\"sum\"></span><span id=\"about\" class=\"quiet\">Point at a token.</span></div>\n"
    "<div id=\"panes\"><section><h2>Local: routing score</h2><div class=\"text\" "
    "id=\"local\"></div>"
    "</section><section><h2>Global: attention received</h2><div class=\"text\" id=\"global\"></div>"
    "</section></div>\n<script>\nconst data = ";

static const char foot[] =
    ";\n"
    "const by = id => document.getElementById(id);\n"
    "const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));\n"
    "const layers = data.layers.map(l => ({chunk: l.chunk, routes: l.routes,\n"
    "  local: l.local.map(bytes), global: l.global.map(bytes)}));\n"
    "const count = data.tokens.length, spans = {local: [], global: []};\n"
    "let shown = [];\n"
    "for (const pane of ['local', 'global'])\n"
    "  data.tokens.forEach((text, t) => {\n"
    "    const span = document.createElement('span');\n"
    "    span.textContent = text;\n"
    "    span.dataset.t = t;\n"
    "    by(pane).append(span);\n"
    "    spans[pane].push(span);\n"
    "  });\n"
    "layers.forEach((l, i) => by('layer').add(new Option(l.routes ? i : i + ' (no routing)', "
    "i)));\n"
    "by('head').add(new Option('all', ''));\n"
    "for (let h = 0; h < data.heads; h++) by('head').add(new Option(h, h));\n"
    "function choose() {\n"
    "  const layer = layers[by('layer').value], head = by('head').value;\n"
    "  const heads = head === '' ? [...Array(data.heads).keys()] : [+head];\n"
    "  const last = Math.floor((count - 1) / layer.chunk);\n"
    "  const routed = layer.routes && last > 1 ? (last - 1) * layer.chunk : 0;\n"
    "  shown = data.tokens.map((text, t) => {\n"
    "    const mean = rows => heads.reduce((s, h) => s + (rows[h][t] & 127), 0) / 127 / "
    "heads.length;\n"
    "    const kept = heads.filter(h => layer.local[h][t] & 128).length;\n"
    "    return {local: mean(layer.local), global: mean(layer.global), kept, of: heads.length,\n"
    "      near: t >= routed};\n"
    "  });\n"
    "  for (const pane of ['local', 'global'])\n"
    "    spans[pane].forEach((span, t) => {\n"
    "      const s = shown[t];\n"
    "      span.style.setProperty('--a', (.85 * s[pane] ** 3).toFixed(3));\n"
    "      span.className = (s.kept ? 'k' : '') + (s.near ? ' near' : '');\n"
    "    });\n"
    "  const kept = shown.filter(s => s.kept).length;\n"
    "  by('sum').textContent = `${kept} of ${routed} decided tokens are kept`;\n"
    "}\n"
    "function point(event) {\n"
    "  const t = event.target.dataset.t;\n"
    "  document.querySelectorAll('.here').forEach(span => span.classList.remove('here'));\n"
    "  if (t === undefined) return;\n"
    "  const s = shown[t], percent = x => Math.round(100 * x) + ' %';\n"
    "  for (const pane of ['local', 'global']) spans[pane][t].classList.add('here');\n"
    "  by('about').textContent = `token ${t}: score above ${percent(s.local)} of the others, `\n"
    "    + (s.near ? 'not decided yet' : `attention above ${percent(s.global)}, `\n"
    "    + (s.of > 1 ? `kept by ${s.kept} of ${s.of} heads` : s.kept ? 'kept' : 'not kept'));\n"
    "}\n"
    "by('layer').addEventListener('change', choose);\n"
    "by('head').addEventListener('change', choose);\n"
    "by('only').addEventListener('change', () =>\n"
    "  by('panes').classList.toggle('only', by('only').checked));\n"
    "by('panes').addEventListener('mouseover', point);\n"
    "choose();\n"
    "</script></body></html>\n";

/* ---- the data */

/* A JavaScript string that may stand inside a script element. */
static void put_string(FILE *out, const char *text, size_t bytes) {
  fputc('"', out);
  for (size_t i = 0; i < bytes; i++) {
    const unsigned char c = (unsigned char)text[i];
    if (c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == 0x7f)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputs("\",", out);
}

/* A character of several tokens is shown with the last of them; special tokens by their names. */
static still_status put_tokens(FILE *out, const still_mechanism *m) {
  still_decoder *decoder;
  still_status status = still_decoder_create(&decoder, m->tokenizer);
  fputs("\"tokens\":[", out);
  for (size_t t = 0; t < m->tokens && !status; t++) {
    const char *text;
    char name[64];
    size_t bytes;
    status = still_decoder_push(decoder, m->ids[t], &text, &bytes);
    const bool special = !still_token_text(m->tokenizer, m->ids[t], 0, NULL, 0);
    if (special) bytes = still_token_text(m->tokenizer, m->ids[t], 1, name, sizeof name);
    if (!status && special) put_string(out, name, still_smaller(bytes, sizeof name));
    if (!status && !special) put_string(out, text, bytes);
  }
  fputs("],\n", out);
  still_decoder_destroy(decoder);
  return status;
}

static void put_base64(FILE *out, const unsigned char *bytes, size_t count) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  fputc('"', out);
  for (size_t i = 0; i < count; i += 3) {
    const unsigned a = bytes[i], b = i + 1 < count ? bytes[i + 1] : 0;
    const unsigned c = i + 2 < count ? bytes[i + 2] : 0, all = a << 16 | b << 8 | c;
    fputc(digits[all >> 18], out);
    fputc(digits[all >> 12 & 63], out);
    fputc(i + 1 < count ? digits[all >> 6 & 63] : '=', out);
    fputc(i + 2 < count ? digits[all & 63] : '=', out);
  }
  fputs("\",", out);
}

/* NaN below all others: an order without it would be none. */
static float rankable(float value) {
  return isnan(value) ? -INFINITY : value;
}

static int by_value(const void *a, const void *b) {
  const float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Each value's place among all, in TOP_RANK steps: how many are below it. */
static void rank(const float *values, size_t count, float *sorted, unsigned char *ranks) {
  for (size_t i = 0; i < count; i++) sorted[i] = rankable(values[i]);
  qsort(sorted, count, sizeof *sorted, by_value);
  for (size_t i = 0; i < count; i++) {
    size_t low = 0, high = count;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (sorted[middle] < rankable(values[i]))
        low = middle + 1;
      else
        high = middle;
    }
    ranks[i] = (unsigned char)(count > 1 ? TOP_RANK * low / (count - 1) : 0);
  }
}

static void put_layer(FILE *out, const still_mechanism *m, int layer, float *sorted,
                      unsigned char *ranks) {
  const still_measured_head *heads = m->measured + layer * m->head_count;
  fprintf(out, "{\"chunk\":%zu,\"routes\":%d,\"local\":[", m->layers[layer].chunk,
          m->layers[layer].routes);
  for (int h = 0; h < m->head_count; h++) {
    rank(heads[h].scores, m->tokens, sorted, ranks);
    for (size_t t = 0; t < m->tokens; t++) ranks[t] |= heads[h].kept[t] ? KEPT : 0;
    put_base64(out, ranks, m->tokens);
  }
  fputs("],\"global\":[", out);
  for (int h = 0; h < m->head_count; h++) {
    rank(heads[h].attention, m->tokens, sorted, ranks);
    put_base64(out, ranks, m->tokens);
  }
  fputs("]},\n", out);
}

static still_status put_page(FILE *out, const still_mechanism *m) {
  float *sorted = NULL;
  unsigned char *ranks = NULL;
  fprintf(out, "%s{\"heads\":%d,", head, m->head_count);
  still_status status = put_tokens(out, m);
  if (!status) status = STILL_ALLOC(&sorted, m->tokens, "a page");
  if (!status) status = STILL_ALLOC(&ranks, m->tokens, "a page");
  fputs("\"layers\":[", out);
  for (int i = 0; i < m->layer_count && !status; i++) put_layer(out, m, i, sorted, ranks);
  fprintf(out, "]}%s", foot);
  still_free(sorted);
  still_free(ranks);
  return status;
}

still_status still_mechanism_draw(const still_mechanism *m, const char *path) {
  still_output output;
  if (!m->measured || !m->heads)
    return still_fail(STILL_ERROR_ARGUMENT, "a page needs a measured record");
  STILL_TRY(still_output_open(&output, path));
  const still_status status = put_page(output.stream, m);
  if (!status) return still_output_commit(&output);
  still_output_abandon(&output);
  return status;
}

"use strict";
// Pictures and curves on a canvas. The colours are interpolated between nine colours of the map viridis (Smith and van
// der Walt 2015).
const MAP = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

function colour(x) {
  const at = Math.max(0, Math.min(0.9999, x)) * (MAP.length - 1), n = Math.floor(at), part = at - n;
  return MAP[n].map((c, i) => Math.round(c + (MAP[n + 1][i] - c) * part));
}

// The picture is as wide as the page, but at most 60 % of the window high, and has the ratio of the array's sides. A
// long array is shown at most 16 times as long as it is wide.
function fit(canvas, ratio) {
  const shown = Math.max(1 / 16, Math.min(16, ratio));
  canvas.style.aspectRatio = String(shown);
  canvas.style.width = `min(100%, ${60 * shown}vh)`;
}

function drawPicture(canvas, frame) {
  canvas.width = frame.columns; canvas.height = frame.rows;
  // Small arrays are enlarged without blurring: each element stays a square.
  canvas.style.imageRendering = frame.columns <= 256 ? "pixelated" : "auto";
  fit(canvas, frame.columns / frame.rows);
  const context = canvas.getContext("2d"), image = context.createImageData(frame.columns, frame.rows);
  const span = frame.greatest - frame.least || 1;
  const flat = frame.greatest === frame.least;
  frame.values.forEach((v, i) => {
    const [r, g, b] = Number.isFinite(v) ? colour(flat ? 0.5 : (v - frame.least) / span) : [255, 0, 255];
    image.data.set([r, g, b, 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
}

function drawCurve(canvas, frame) {
  const ratio = window.devicePixelRatio || 1, width = canvas.parentElement.clientWidth || 640, height = Math.round(width * 0.45);
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.imageRendering = "auto"; fit(canvas, width / height);
  const style = getComputedStyle(document.documentElement), context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const left = 8, right = 8, top = 26, bottom = 10, span = frame.greatest - frame.least || 1;
  const x = i => left + (width - left - right) * (frame.columns > 1 ? i / (frame.columns - 1) : 0.5);
  const y = v => top + (height - top - bottom) * (1 - (v - frame.least) / span);
  context.strokeStyle = style.getPropertyValue("--line");
  for (const part of [0, 0.5, 1]) {
    const at = y(frame.least + span * part);
    context.beginPath(); context.moveTo(left, at); context.lineTo(width - right, at); context.stroke();
    context.fillStyle = style.getPropertyValue("--soft"); context.font = "11px system-ui";
    context.textAlign = "right"; context.fillText(number(frame.least + span * part), width - right, at - 3);
  }
  context.strokeStyle = style.getPropertyValue("--accent"); context.lineWidth = 1.6;
  context.beginPath();
  let pen = false;
  frame.values.forEach((v, i) => {
    if (!Number.isFinite(v)) { pen = false; return; }
    if (pen) context.lineTo(x(i), y(v)); else context.moveTo(x(i), y(v));
    pen = true;
  });
  if (frame.columns === 1) context.arc(x(0), y(frame.values[0]), 3, 0, 7);
  context.stroke();
}

function drawFrame(canvas, frame) {
  if (frame.rows > 1) drawPicture(canvas, frame); else drawCurve(canvas, frame);
}

// Reads a frame in the form in which the server sends it: the length of its description, the description, the numbers.
function readFrame(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const frame = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  frame.values = new Float32Array(buffer, 4 + length);
  return frame;
}

function number(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e5 || size < 1e-3) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}

// Formats a number of things that are counted: 275 k rather than 2.75e+5.
function count(n) {
  const units = ["", " k", " M", " G"];
  let i = 0;
  while (n >= 10000 && i < units.length - 1) { n /= 1000; i++; }
  return `${n >= 100 || Number.isInteger(n) ? Math.round(n) : Number(n.toPrecision(3))}${units[i]}`;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${i && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

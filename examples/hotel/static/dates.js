// Leaving is at least a day after arriving; the server checks it again.

const from = document.getElementById("from");
const to = document.getElementById("to");

function keep() {
  if (!from.value) return;
  const next = new Date(`${from.value}T00:00:00Z`);
  next.setUTCDate(next.getUTCDate() + 1);
  to.min = next.toISOString().slice(0, 10);
  if (to.value && to.value < to.min) to.value = to.min;
}

from.addEventListener("change", keep);
keep();

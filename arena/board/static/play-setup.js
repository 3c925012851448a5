// Another match is shown as soon as it is chosen.
const form = document.getElementById("matches");
form.querySelector("select").addEventListener("change", () => form.submit());

// Policies advise in seats that they know, and a rated game has one person.
const setup = document.querySelector("form[action^='/play-begin/']");
function check() {
  const people = [...setup.querySelectorAll("[name^=seat-]")].filter((one) => one.value === "person").map((one) => one.name.slice(5));
  for (const one of setup.elements.advice.options) {
    one.disabled = one.value !== "" && !one.dataset.seats.split(" ").some((seat) => people.includes(seat));
    if (one.disabled && one.selected) setup.elements.advice.value = "";
  }
  setup.elements.rated?.setCustomValidity(setup.elements.rated.checked && people.length > 1 ? "A rated game has one person." : "");
}
setup.addEventListener("change", check);
check();

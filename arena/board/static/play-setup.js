// Another match is shown as soon as it is chosen.
const form = document.getElementById("matches");
form.querySelector("select").addEventListener("change", () => form.submit());

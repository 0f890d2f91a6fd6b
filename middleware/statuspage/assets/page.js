// Replaces the live part of the page once per second. Without this script the page is a snapshot.
"use strict";
const live = document.getElementById("live");
const pause = document.getElementById("pause");
const state = document.getElementById("state");
let paused = false;

function show(text) {
	if (state.textContent !== text) {
		state.textContent = text;
	}
}

async function update() {
	if (!paused && !document.hidden) {
		try {
			const response = await fetch("./", {cache: "no-store"});
			if (!response.ok) {
				throw new Error(response.statusText);
			}
			const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
			if (!paused) {
				live.replaceChildren(...fresh.getElementById("live").childNodes);
				show("live");
			}
		} catch {
			show("no answer");
		}
	}
	setTimeout(update, 1000);
}

pause.addEventListener("click", () => {
	paused = !paused;
	pause.textContent = paused ? "Go on" : "Pause";
	show(paused ? "paused" : "live");
});
pause.hidden = false;
show("live");
setTimeout(update, 1000);

"use strict";
// What every part of the page needs: the theme, fetching, notices, and the address, which holds all that was chosen.
const sweeperBrowser = (() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const phone = matchMedia("(max-width: 37.5rem)");
  const byId = (id) => document.getElementById(id);

  // The theme: the system's, unless the switch says otherwise.
  const stored = () => {
    try {
      return localStorage.getItem("sweeper-theme");
    } catch {
      return null; // storage may be forbidden
    }
  };
  const theme = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  if (["dark", "light"].includes(stored())) root.dataset.theme = stored();
  const nameSwitch = () => {
    const button = byId("switch");
    if (!button) return;
    const word = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `${word} theme`);
    button.textContent = phone.matches ? word : `${word} theme`;
  };
  const retheme = () => {
    nameSwitch();
    dispatchEvent(new Event("sweeper-theme"));
  };
  const switchTheme = () => {
    const wanted = theme() === "dark" ? "light" : "dark";
    root.dataset.theme = wanted;
    try {
      localStorage.setItem("sweeper-theme", wanted);
    } catch {} // then it holds for this page only
    retheme();
  };
  system.addEventListener("change", retheme);
  phone.addEventListener("change", retheme);
  addEventListener("DOMContentLoaded", nameSwitch);

  // What is fetched: each address once, as long as it is shown.
  const fetched = new Map();
  const get = (url, read) => {
    if (!fetched.has(url)) {
      const answer = load(url).then((response) => response[read]());
      answer.catch(() => fetched.delete(url));
      fetched.set(url, answer);
      if (fetched.size > 64) fetched.delete(fetched.keys().next().value);
    }
    return fetched.get(url);
  };
  const load = async (url, headers = {}, again = 3) => {
    let response;
    try {
      response = await fetch(url, { credentials: "same-origin", headers });
    } catch (error) {
      if (!again) throw error; // the network may be back in a moment
    }
    if ((!response || response.status === 429) && again) {
      await new Promise((resolve) => setTimeout(resolve, 1500));
      return load(url, headers, again - 1);
    }
    if (!(response.ok || response.status === 304) || response.redirected) throw new Error(await reason(response));
    return response;
  };
  const reason = async (response) => {
    if (response.status === 401 || response.redirected) return "You are signed out; load the page again.";
    const text = await response.text();
    try {
      return JSON.parse(text).detail ?? text;
    } catch {
      return text.slice(0, 300) || `The service answered ${response.status}.`;
    }
  };
  const notice = (text) => {
    const place = byId("notice");
    place.textContent = text;
    place.hidden = !text;
  };

  // Links within the page change the address without loading it again.
  const go = (url) => {
    history.pushState(null, "", url);
    dispatchEvent(new Event("sweeper-address"));
  };
  addEventListener("popstate", () => dispatchEvent(new Event("sweeper-address")));
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#switch")) switchTheme();
    const link = event.target.closest?.("a[data-local]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(link.href);
    const place = link.hash && byId(link.hash.slice(1));
    if (!place) return scrollTo({ top: 0 });
    const show = () => (place.scrollIntoView(), place.focus({ preventScroll: true }));
    if (place.checkVisibility()) show();
    else addEventListener("sweeper-shown", show, { once: true });
  });
  // What is chosen goes into the address; null takes it out. Of the smallest values each name has one.
  const choose = (changes, minimum = {}) => {
    const query = new URLSearchParams(location.search);
    const kept = query.getAll("min").filter((one) => !Object.hasOwn(minimum, one.slice(0, one.lastIndexOf("="))));
    const added = Object.entries(minimum).filter(([, value]) => value !== null);
    query.delete("min");
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) query.delete(name);
      else query.set(name, value);
    }
    for (const one of [...kept, ...added.map((pair) => pair.join("="))]) query.append("min", one);
    go(`/?${query}`);
  };

  return { byId, phone, theme, get, load, notice, go, choose };
})();

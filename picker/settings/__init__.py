"""
Settings: what an operator may turn, read from the environment once, frozen afterwards.

One model per part of the picker; a part is handed its own model and nothing else. Every variable starts with
``PICKER_``; a few names of the field are accepted as aliases. Durations are plain seconds. The text under each
field is the documentation: the README's table and the chart's schema are generated from it.
"""

from picker.settings.admin import AdminSettings, LifeSettings, PeersSettings
from picker.settings.discovery import API_OBJECTS, DiscoverySettings, WorkerSettings
from picker.settings.events import BridgeSettings, EventSettings
from picker.settings.loading import PARTS, Settings, known_names, load, names_of
from picker.settings.part import PREFIX, Part, Seconds, SettingsError, Words
from picker.settings.plane import PlaneSettings
from picker.settings.price import PriceSettings
from picker.settings.requests import SECRET_HEADERS, RequestSettings
from picker.settings.serving import PoolSettings, ServingSettings

__all__ = [
    "API_OBJECTS",
    "PARTS",
    "PREFIX",
    "SECRET_HEADERS",
    "AdminSettings",
    "BridgeSettings",
    "DiscoverySettings",
    "EventSettings",
    "LifeSettings",
    "Part",
    "PeersSettings",
    "PlaneSettings",
    "PoolSettings",
    "PriceSettings",
    "RequestSettings",
    "Seconds",
    "ServingSettings",
    "Settings",
    "SettingsError",
    "Words",
    "WorkerSettings",
    "known_names",
    "load",
    "names_of",
]

"""Addresses of the site."""

from django.urls import path

from examples.web.django_site.views import place

urlpatterns = [path("orders", place)]
